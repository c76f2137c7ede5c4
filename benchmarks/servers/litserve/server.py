"""A Hugging Face classifier behind litserve, in the form of Hugging Face's own endpoints: server.py FOLDER."""

import sys

import litserve
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer


class Classifier(litserve.LitAPI):
    """Texts in, every label with its probability out."""

    def setup(self, device: str) -> None:
        """Load the model, in each worker."""
        self.tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
        loaded = AutoModelForSequenceClassification.from_pretrained(sys.argv[1], dtype=torch.float32)
        self.model = loaded.eval().to(device)

    def decode_request(self, request: dict[str, object]) -> object:
        """The texts; litserve wants the parameter to have this name, and checks requests by its type."""
        return request["inputs"]

    def predict(self, texts: list[str]) -> list[list[dict[str, object]]]:
        """One list of labels and scores per text."""
        batch = self.tokenizer(texts, padding=True, truncation=True, return_tensors="pt")
        with torch.no_grad():
            rows = self.model(**batch.to(self.model.device)).logits.softmax(-1).double().tolist()
        names = self.model.config.id2label
        return [[{"label": names[i], "score": score} for i, score in enumerate(row)] for row in rows]

    def encode_response(self, output: object) -> object:
        """As it is."""
        return output


if __name__ == "__main__":
    server = litserve.LitServer(Classifier(), accelerator="cpu")
    server.run(host="127.0.0.1", port=18085, generate_client_file=False)

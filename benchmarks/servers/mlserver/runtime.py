"""A runtime of mlserver for a folder with model.onnx and tokenizer.json."""

import os
from pathlib import Path

import numpy as np
import onnxruntime
from mlserver import MLModel, types
from mlserver.codecs import NumpyCodec, StringCodec
from tokenizers import Tokenizer

FOLDER = Path(os.environ["PISTE_MODEL"])


class Sentiment(MLModel):
    """Logits and probabilities, one text at a time, as the graph's rounding depends on the padding."""

    async def load(self) -> bool:
        """Open the model."""
        self.tokenizer = Tokenizer.from_file(str(FOLDER / "tokenizer.json"))
        self.tokenizer.no_padding()
        self.session = onnxruntime.InferenceSession(str(FOLDER / "model.onnx"))
        self.names = {each.name for each in self.session.get_inputs()}
        return True

    async def predict(self, payload: types.InferenceRequest) -> types.InferenceResponse:
        """Answer a tensor of strings."""
        texts = StringCodec.decode_input(payload.inputs[0])
        logits = np.concatenate([self.logits(text) for text in texts])
        odds = np.exp(logits - logits.max(axis=1, keepdims=True))
        outputs = {"logits": logits, "probabilities": odds / odds.sum(axis=1, keepdims=True)}
        encoded = [NumpyCodec.encode_output(name, values) for name, values in outputs.items()]
        return types.InferenceResponse(model_name=self.name, outputs=encoded)

    def logits(self, text: str) -> np.ndarray:
        """Shape (1, n_labels)."""
        encoding = self.tokenizer.encode(text)
        feed = {
            "input_ids": encoding.ids,
            "attention_mask": encoding.attention_mask,
            "token_type_ids": encoding.type_ids,
        }
        arrays = {name: np.array([ids], np.int64) for name, ids in feed.items() if name in self.names}
        return self.session.run(None, arrays)[0]

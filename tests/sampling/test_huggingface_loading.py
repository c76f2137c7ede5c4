from pathlib import Path
from typing import Any

import pytest

from piste._errors import InputError, ModelError
from piste.sampling.models import HuggingFaceClassifier, load_model


def test_fingerprint_tells_models_apart(transformers: Any, torch: Any, tiny_bert_dir: Path) -> None:
    def load() -> tuple[Any, Any]:
        model = transformers.AutoModelForSequenceClassification.from_pretrained(tiny_bert_dir)
        return model, transformers.AutoTokenizer.from_pretrained(tiny_bert_dir)

    model, tokenizer = load()
    box = HuggingFaceClassifier(model, tokenizer=tokenizer)
    box.score(["a film"])  # leaves truncation settings behind in the tokenizer
    prints = [box.fingerprint]
    assert box.fingerprint == HuggingFaceClassifier(load()[0], tokenizer=load()[1]).fingerprint
    prints.append(HuggingFaceClassifier(model, tokenizer=tokenizer, kind="raw").fingerprint)
    prints.append(load_model(f"hf:{tiny_bert_dir}", dtype="bfloat16").fingerprint)
    tokenizer.model_max_length = 8
    prints.append(HuggingFaceClassifier(model, tokenizer=tokenizer).fingerprint)
    tokenizer.model_max_length = 16
    with torch.no_grad():
        model.classifier.bias[0] += 1e-3
    prints.append(HuggingFaceClassifier(model, tokenizer=tokenizer).fingerprint)
    assert len(set(prints)) == 5


def test_folder_without_a_trained_head_is_refused(
    transformers: Any, tiny_bert_dir: Path, tmp_path: Path
) -> None:  # R54
    transformers.AutoModel.from_pretrained(tiny_bert_dir).save_pretrained(tmp_path)
    transformers.AutoTokenizer.from_pretrained(tiny_bert_dir).save_pretrained(tmp_path)
    with pytest.raises(InputError, match=r"without trained classifier\.bias, classifier\.weight"):
        load_model(f"hf:{tmp_path}")


def test_other_heads_are_refused(
    transformers: Any, tiny_bert: tuple[Any, Any], torch: Any
) -> None:  # R54
    config = tiny_bert[0].config
    with torch.random.fork_rng():
        tagger = transformers.BertForTokenClassification(config)
        bare = transformers.BertModel(config)
    with pytest.raises(
        ModelError, match=r"BertForTokenClassification returned logits of shape \(1, 5, 3\)"
    ):
        load_model(tagger, tokenizer=tiny_bert[1]).score(["a good film"])
    with pytest.raises(ModelError, match="BertModel returned no logits for 1 texts"):
        load_model(bare, tokenizer=tiny_bert[1]).score(["a good film"])


def test_other_pipelines_are_refused(transformers: Any, tiny_bert: tuple[Any, Any], torch: Any) -> None:
    with torch.random.fork_rng():
        masked = transformers.BertForMaskedLM(tiny_bert[0].config)
    pipeline = transformers.pipeline("fill-mask", model=masked, tokenizer=tiny_bert[1])
    with pytest.raises(
        InputError, match=r"Got a pipeline for 'fill-mask'; expected .*'text-classification'"
    ):
        load_model(pipeline)


@pytest.mark.parametrize("path", ["/no/such/folder", "./nowhere", "~/nowhere-at-all"])
def test_missing_folder(path: str, torch: Any) -> None:
    with pytest.raises(InputError, match=r"there is no such folder; expected config\.json"):
        load_model(f"hf:{path}")


def test_unloadable_models(transformers: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not load as a sequence classifier"):
        load_model(f"hf:{tmp_path}")
    with pytest.raises(InputError, match="Got 'hf:nobody/nothing', which does not load"):
        load_model("hf:nobody/nothing")

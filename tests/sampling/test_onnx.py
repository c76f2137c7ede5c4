from pathlib import Path
from piste.sampling.models import *
def test_a(tiny_onnx_dir, tiny_bert_dir):
    a=load_model(f"onnx:{tiny_onnx_dir}", threads=1); b=load_model(f"hf:{tiny_bert_dir}")
    t=["a good film", "", "not a very bad film !"]
    print(a.score(t), b.score(t), a.fingerprint, b.fingerprint, a.seen_until(["a "*20]), b.seen_until(["a "*20,"the "*9]))
    assert 0

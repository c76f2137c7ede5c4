import importlib.util
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from piste._errors import InputError, ModelError
from piste._typing import FloatArray
from piste.sampling._store_database import AnswerStore
from piste.sampling.models import Scores
from piste.sampling.records import Hidden, OutputKind, Query
from piste.sampling.store import export, load, open_store

TEXTS = st.text(st.characters(exclude_categories=()), max_size=8)
QUERIES = st.one_of(
    TEXTS, st.tuples(TEXTS, TEXTS), TEXTS.map(lambda text: Hidden(text, ((0, 0, len(text)),)))
)
NEED_PYARROW = pytest.mark.skipif(
    importlib.util.find_spec("pyarrow") is None, reason="needs pyarrow, which piste does not"
)
FORMATS = ("csv", pytest.param("parquet", marks=NEED_PYARROW))

# Files of version 1, never to be changed: later versions must read them, and find their answers by key.
STORE_V1 = """
PRAGMA application_id = 1346982740;
PRAGMA user_version = 1;
CREATE TABLE models (
    id INTEGER PRIMARY KEY, fingerprint BLOB NOT NULL, output TEXT NOT NULL, labels BLOB NOT NULL,
    kind TEXT NOT NULL, checksum INTEGER NOT NULL, UNIQUE (fingerprint, output));
CREATE TABLE answers (
    key BLOB PRIMARY KEY, model INTEGER NOT NULL REFERENCES models, query BLOB NOT NULL,
    scores BLOB NOT NULL, checksum INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO models VALUES (1, X'6F6E6E783A31', '', X'5B226E6F222C22796573225D', 'logit', 4053093988);
INSERT INTO models VALUES (2, X'63616C6C61626C65', 'probability', X'5B2230225D', 'probability', 2009039056);
INSERT INTO answers VALUES (X'1357B91F6566D69D9CF274FA92642729165182830DA36DA753723D6381C0B173', 1,
    X'7B2274657874223A22612062222C227370616E73223A5B5B302C322C335D5D7D',
    X'A0C8EB85F3CCE17F000000000000F0FF', 3971215165);
INSERT INTO answers VALUES (X'5411A9DA0D45F4D1A065926B9EF4776B2836271D0901FF2CD942943A6B5E9ACE', 1,
    X'5B2261222C2262225D', X'555555555555D53F000000000000F87F', 373651344);
INSERT INTO answers VALUES (X'5B92DAF7438F144A834BF9E2DEE0329102A46A784C96C3C9C014C6401A6F8F4B', 1,
    X'2245696E20E2809CC38472676572E2809D2C5C6E4E4122', X'00000000000000800100000000000000', 249122252);
INSERT INTO answers VALUES (X'9C3F2EC83AD7687106A89A33D271B3276143662913F7A1EDF67592E9FABC804E', 2,
    X'224E4122', X'9A9999999999B93F', 1041408429);
"""
TABLE_V1 = r'''format,model,output,kind,labels,query,scores
1,callable,probability,probability,"[""0""]","""NA""",[0.1]
1,onnx:1,,logit,"[""no"", ""yes""]","{""text"":""a b"",""spans"":[[0,2,3]]}","[1e+308, -Infinity]"
1,onnx:1,,logit,"[""no"", ""yes""]","[""a"",""b""]","[0.3333333333333333, NaN]"
1,onnx:1,,logit,"[""no"", ""yes""]","""Ein “Ärger”,\nNA""","[-0.0, 5e-324]"
'''.replace("\n", "\r\n")
ONNX: list[tuple[Query, list[float]]] = [
    (Hidden("a b", ((0, 2, 3),)), [1e308, -np.inf]),
    (("a", "b"), [1 / 3, np.nan]),
    ("Ein “Ärger”,\nNA", [-0.0, 5e-324]),
]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[AnswerStore]:
    with open_store(tmp_path / "answers.sqlite") as opened:
        yield opened


@pytest.fixture
def other(tmp_path: Path) -> Iterator[AnswerStore]:
    with open_store(tmp_path / "other.sqlite") as opened:
        yield opened


def fill_v1(store: AnswerStore) -> None:
    queries, rows = [query for query, _ in ONNX], np.array([row for _, row in ONNX])
    store.of("onnx:1").put(queries, Scores(rows, ("no", "yes"), "logit"))
    one = Scores(np.array([[0.1]]), ("0",), "probability")
    store.of("callable", "probability").put(["NA"], one)


def bits(row: FloatArray | None) -> bytes | None:
    return None if row is None else row.tobytes()


def contents(store: AnswerStore) -> list[tuple[object, ...]]:
    return [(*answer[:-1], answer.values.tobytes()) for answer in store.answers()]


def test_a_table_of_version_1_is_written(store: AnswerStore, tmp_path: Path) -> None:
    fill_v1(store)
    assert export(store, tmp_path / "answers.csv") == 4
    assert (tmp_path / "answers.csv").read_bytes().decode() == TABLE_V1


def test_a_table_of_version_1_is_read(store: AnswerStore, other: AnswerStore, tmp_path: Path) -> None:
    (tmp_path / "answers.csv").write_bytes(TABLE_V1.encode())
    assert load(tmp_path / "answers.csv", store) == 4
    fill_v1(other)
    assert contents(store) == contents(other)


def test_a_store_of_version_1_is_read(tmp_path: Path, other: AnswerStore) -> None:
    path = tmp_path / "v1.sqlite"
    connection = sqlite3.connect(path)
    connection.executescript(STORE_V1)
    connection.close()
    fill_v1(other)
    with open_store(path) as store:
        rows = store.of("onnx:1").get([query for query, _ in ONNX])
        assert list(map(bits, rows)) == [np.array(row).tobytes() for _, row in ONNX]
        assert bits(store.of("callable", "probability").get(["NA"])[0]) == np.array([0.1]).tobytes()
        assert contents(store) == contents(other)
        assert store.models() == other.models()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=50)
@given(
    queries=st.lists(QUERIES, min_size=1, max_size=4, unique=True),
    numbers=st.lists(st.floats(allow_nan=False), min_size=2, max_size=2),
    labels=st.tuples(TEXTS, TEXTS).filter(lambda labels: labels[0] != labels[1]),
    fingerprint=TEXTS,
    output=st.sampled_from([None, "logit", "raw"]),
)
def test_csv_keeps_everything(
    tmp_path: Path,
    queries: list[Query],
    numbers: list[float],
    labels: tuple[str, str],
    fingerprint: str,
    output: OutputKind | None,
) -> None:
    """NaN aside, of which CSV keeps that it is one, not which."""
    rows = np.array([numbers] * len(queries))
    for name in ("one.sqlite", "two.sqlite"):
        (tmp_path / name).unlink(missing_ok=True)
    with open_store(tmp_path / "one.sqlite") as one, open_store(tmp_path / "two.sqlite") as two:
        one.of(fingerprint, output).put(queries, Scores(rows, labels, "raw"))
        export(one, tmp_path / "answers.csv")
        assert load(tmp_path / "answers.csv", two) == len(queries)
        assert contents(one) == contents(two)


@pytest.mark.parametrize("suffix", FORMATS)
def test_there_and_back(store: AnswerStore, other: AnswerStore, tmp_path: Path, suffix: str) -> None:
    fill_v1(store)
    path = tmp_path / f"answers.{suffix}"
    assert export(store, path) == load(path, other) == 4
    assert contents(store) == contents(other)
    assert load(path, other) == 0
    export(other, tmp_path / f"again.{suffix}")
    assert (tmp_path / f"again.{suffix}").read_bytes() == path.read_bytes()
    assert {file.suffix for file in tmp_path.iterdir()} <= {f".{suffix}", ".sqlite"} | {
        ".sqlite-wal",
        ".sqlite-shm",
    }


@pytest.mark.parametrize("suffix", FORMATS)
def test_an_empty_store_there_and_back(store: AnswerStore, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"answers.{suffix}"
    assert export(store, path) == load(path, store) == 0


def test_equal_answers_make_equal_files(store: AnswerStore, other: AnswerStore, tmp_path: Path) -> None:
    texts = [f"text {number}" for number in range(20)]
    for text in texts:
        store.of("m").put([text], Scores(np.array([[len(text)]], np.float64), ("x",), "raw"))
    for text in reversed(texts):
        other.of("m").put([text], Scores(np.array([[len(text)]], np.float64), ("x",), "raw"))
    export(store, tmp_path / "one.csv")
    export(other, tmp_path / "two.csv")
    assert (tmp_path / "one.csv").read_bytes() == (tmp_path / "two.csv").read_bytes()


def test_a_text_longer_than_the_csv_module_reads(
    store: AnswerStore, other: AnswerStore, tmp_path: Path
) -> None:
    store.of("m").put(["x" * 300_000], Scores(np.ones((1, 1)), ("x",), "raw"))
    export(store, tmp_path / "answers.csv")
    assert load(tmp_path / "answers.csv", other) == 1


def test_what_is_known_stays(store: AnswerStore, tmp_path: Path) -> None:
    first = np.array([[7.0, 8.0]])
    store.of("onnx:1").put([("a", "b")], Scores(first, ("no", "yes"), "logit"))
    (tmp_path / "answers.csv").write_bytes(TABLE_V1.encode())
    assert load(tmp_path / "answers.csv", store) == 3
    assert bits(store.of("onnx:1").get([("a", "b")])[0]) == first.tobytes()


def test_other_labels_of_a_known_model_are_refused(store: AnswerStore, tmp_path: Path) -> None:
    store.of("onnx:1").put(["a"], Scores(np.ones((1, 2)), ("no", "maybe"), "logit"))
    (tmp_path / "answers.csv").write_bytes(TABLE_V1.encode())
    with pytest.raises(ModelError, match=r"returned no, yes \(logit\); expected no, maybe \(logit\)"):
        load(tmp_path / "answers.csv", store)


HEADER, ROW = "format,model,output,kind,labels,query,scores\n", '1,m,,raw,"[""x""]","""a""",[1.0]\n'


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("", "No columns to parse"),
        ("text,label\na,b\n", "with columns text, label; expected a table written by"),
        (HEADER + ROW + "2" + ROW[1:], "row 2 of .*format '2' instead of '1'"),
        (HEADER + ROW.replace("raw", "odds"), "row 1 of .*the output kind 'odds'"),
        (
            HEADER + ROW.replace("[1.0]", '"[1.0, 2.0]"'),
            r"scores of shape \(1, 2\) for 1 labels",
        ),
        (HEADER + ROW.replace("[1.0]", "[1.0"), "Expecting ',' delimiter"),
        (HEADER + ROW.replace("[1.0]", "[{}]"), "row 1 of"),
        (HEADER + ROW.replace('"""a"""', "1"), "1 is neither a text nor a pair"),
        (HEADER + ROW.replace('"[""x""]"', "1"), "not iterable"),
        (HEADER + '1,m,"', "EOF inside string"),
        (HEADER.encode() + b"\xff\xfe", "can't decode|invalid start byte|Buffer"),
    ],
)
def test_other_tables_are_refused_whole(
    store: AnswerStore, tmp_path: Path, table: str | bytes, message: str
) -> None:
    path = tmp_path / "answers.csv"
    path.write_bytes(table if isinstance(table, bytes) else table.encode())
    with pytest.raises(InputError, match=message) as caught:
        load(path, store)
    assert "expected a table written by `piste store export`" in str(caught.value)
    assert store.models() == []


def test_places_that_cannot_be_used(store: AnswerStore, tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"answers\.txt'; expected a name that ends in \.csv or \.parquet"
    ):
        export(store, tmp_path / "answers.txt")
    with pytest.raises(InputError, match=r"when reading .*missing\.csv'"):
        load(tmp_path / "missing.csv", store)
    for name in ("answers.csv", "answers.parquet"):
        if name.endswith("csv") or importlib.util.find_spec("pyarrow"):
            missing = tmp_path / "missing" / name
            with pytest.raises(
                InputError, match=r"when writing .*; expected an existing, writable folder"
            ) as error:
                export(store, missing)
            assert f".{name}." not in str(error.value)  # the file that is moved there at the end
            assert f"'{missing}'" in str(error.value)
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(InputError, match="when writing"):
        export(store, tmp_path / "folder.csv")
    assert {path.name for path in tmp_path.iterdir() if "sqlite" not in path.name} == {"folder.csv"}


def test_parquet_without_pyarrow(
    store: AnswerStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("piste.sampling._store_tables.find_spec", lambda _: None)
    message = r"without pyarrow.* Install it with: pip install 'piste\[parquet\]', or"
    with pytest.raises(InputError, match=message):
        export(store, tmp_path / "a.parquet")
    with pytest.raises(InputError, match=message):
        load(tmp_path / "a.parquet", store)


@NEED_PYARROW
def test_parquet_holds_no_lone_surrogates(store: AnswerStore, tmp_path: Path) -> None:
    store.of("m").put(["\ud83d"], Scores(np.ones((1, 1)), ("x",), "raw"))
    with pytest.raises(InputError, match=r"or \.csv for texts with lone surrogates"):
        export(store, tmp_path / "answers.parquet")


@NEED_PYARROW
def test_a_broken_parquet_file_is_refused(store: AnswerStore, tmp_path: Path) -> None:
    (tmp_path / "answers.parquet").write_bytes(b"PAR1")
    with pytest.raises(InputError, match="expected a table written by `piste store export`"):
        load(tmp_path / "answers.parquet", store)

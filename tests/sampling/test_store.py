import os
import sqlite3
import subprocess
import sys
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Barrier, Event, Lock
from typing import get_args

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import piste
from piste._errors import InputError, ModelError
from piste.sampling._store_bytes import decode_query, encode_query
from piste.sampling._store_database import AnswerStore
from piste.sampling.collect import Store, collect
from piste.sampling.models import BlackBox, CallableModel, Scores, Tokenizing, TokenizingCallable
from piste.sampling.records import Hidden, OutputKind, Query
from piste.sampling.store import (
    Stored,
    StoredOnly,
    chosen_store,
    default_location,
    info,
    open_answers,
    open_store,
    vacuum,
    with_store,
)

SMALLEST = 5e-324
EVERY_CHARACTER = st.characters(exclude_categories=())
TEXTS = st.text(EVERY_CHARACTER, max_size=8)
PAIRS = st.tuples(TEXTS, TEXTS)
SPANS = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 9), st.integers(0, 9)), max_size=3)
QUERIES = st.one_of(TEXTS, PAIRS, st.builds(Hidden, st.one_of(TEXTS, PAIRS), SPANS.map(tuple)))


class Recorder:
    """A model that remembers what it was asked, from any thread, and answers with lengths."""

    def __init__(
        self, fingerprint: str = "recorder", *, answer: Callable[[Query], float] | None = None
    ) -> None:
        self.fingerprint = fingerprint
        self.asked: list[Query] = []
        self.answer = answer or (lambda query: float(len(str(query))))

    def score(self, inputs: Sequence[Query]) -> Scores:
        self.asked += inputs
        return Scores(np.array([[self.answer(query)] for query in inputs]), ("length",), "raw")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "answers.sqlite"


@pytest.fixture
def store(path: Path) -> Iterator[AnswerStore]:
    with open_store(path) as opened:
        yield opened


def one(value: float, label: str = "x", kind: OutputKind = "raw") -> Scores:
    return Scores(np.array([[value]]), (label,), kind)


# What is asked


def test_a_second_run_sends_nothing(path: Path) -> None:  # T14
    queries: list[Query] = ["a film", ("a", "film"), Hidden("a film", ((0, 0, 1),)), "a film", ""]
    first, second = Recorder(), Recorder()
    with open_store(path) as store:
        model = Stored(first, store)
        answers = collect(model, queries)
        assert sorted(map(str, first.asked)) == sorted(map(str, set(queries)))
        assert (model.n_asked, model.n_known) == (4, 0)
    with open_store(path) as store:
        model = Stored(second, store)
        again = collect(model, queries)
        assert (model.n_asked, model.n_known) == (0, 4)
    assert second.asked == []
    assert again.values.tobytes() == answers.values.tobytes()
    assert (again.labels, again.kind) == (answers.labels, answers.kind) == (("length",), "raw")


def test_only_the_unknown_part_of_a_batch_is_asked_in_its_order(store: AnswerStore) -> None:
    recorder = Recorder()
    model = Stored(recorder, store)
    model.score(["bb"])
    assert model.score(["dddd", "bb", "a", "dddd"]).values.ravel().tolist() == [4, 2, 1, 4]
    assert recorder.asked == ["bb", "dddd", "a"]


@pytest.mark.parametrize(
    ("known", "other"),
    [
        (unicodedata.normalize("NFC", "é"), unicodedata.normalize("NFD", "é")),
        (("a", "b"), "a b"),
        (("a", "b"), '["a","b"]'),
        (("a", "b"), ("a b", "")),
        ("ab", Hidden("ab", ())),
        (Hidden("ab", ((0, 0, 1),)), Hidden("ab", ((0, 1, 2),))),
        (Hidden("ab", ((0, 0, 1),)), Hidden(("ab", ""), ((0, 0, 1),))),
        ("\ud83d\ude00", "\U0001f600"),  # two lone surrogates, and the character they would make
        ("a\n", "a"),
        ("A", "a"),
        ("\0", ""),
    ],
)
def test_inputs_are_known_exactly(store: AnswerStore, known: Query, other: Query) -> None:
    answers = store.of("m")
    answers.put([known], one(1.0))
    assert [row is None for row in answers.get([known, other])] == [False, True]


def test_models_and_output_kinds_are_told_apart(store: AnswerStore) -> None:
    for number, kind in enumerate((None, *get_args(OutputKind))):
        store.of("m", kind).put(["a"], one(number, kind=kind or "raw"))
    store.of('m","').put(["a"], one(9, label="y"))
    stored = [store.of("m", kind).get(["a"])[0] for kind in (None, *get_args(OutputKind))]
    assert [None if row is None else row.item() for row in stored] == [0, 1, 2, 3, 4]
    assert store.of("other").get(["a"]) == [None]
    assert (store.of("other").labels, store.of("other").kind) == (None, None)
    assert (store.of("m", "logit").labels, store.of("m", "logit").kind) == (("x",), "logit")


def test_it_is_a_store_of_collect(store: AnswerStore) -> None:
    answers: Store = store.of("m")
    model = Recorder()
    assert collect(model, ["a", "b"], store=answers).n_queries == 2
    assert collect(model, ["b", "c"], store=answers).n_queries == 1


@settings(max_examples=200)
@given(QUERIES)
def test_every_query_comes_back(query: Query) -> None:
    assert decode_query(encode_query(query)) == query


@given(QUERIES, QUERIES)
def test_only_equal_queries_are_encoded_equally(first: Query, second: Query) -> None:
    assert (encode_query(first) == encode_query(second)) == (first == second)


@pytest.mark.parametrize(
    "content", ["1", "[]", '["a"]', '["a","b","c"]', '{"text":"a"}', '{"text":"a","spans":[[0]]}', "x"]
)
def test_other_json_is_no_query(content: str) -> None:
    with pytest.raises(ValueError, match=r"neither a text nor a pair|no span|Expecting value"):
        decode_query(content.encode())


def test_numpy_offsets_are_the_same_offsets() -> None:
    spans = tuple(map(tuple, np.array([[0, 1, 2]])))
    assert encode_query(Hidden("abc", spans)) == encode_query(Hidden("abc", ((0, 1, 2),)))


# What is kept


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.floats(), min_size=1, max_size=5))
def test_numbers_are_kept_bit_for_bit(store: AnswerStore, numbers: list[float]) -> None:
    row = np.array([[*numbers, -0.0, SMALLEST, np.nextafter(1, 2)]])
    answers = store.of(row.tobytes().hex())
    answers.put(["a"], Scores(row, tuple(map(str, range(row.size))), "raw"))
    (kept,) = answers.get(["a"])
    assert kept is not None
    assert kept.tobytes() == row.tobytes()
    assert kept.flags.writeable


def test_the_first_answer_stays(store: AnswerStore) -> None:
    """A noisy model asked by two processes at once: both go on with the answer that was first."""
    answers = store.of("recorder")

    class Late(Recorder):
        def score(self, inputs: Sequence[Query]) -> Scores:
            answers.put(["a"], Scores(np.array([[7.0]]), ("length",), "raw"))
            return super().score(inputs)

    assert Stored(Late(), store).score(["a"]).values.item() == 7.0


def test_answers_that_are_not_finite_are_kept_until_dropped(store: AnswerStore) -> None:
    recorder = Recorder(answer=lambda query: {"nan": np.nan, "inf": -np.inf}.get(str(query), 1.0))
    model = Stored(recorder, store)
    for _ in range(2):
        values = model.score(["nan", "inf", "a"]).values.ravel().tolist()
        np.testing.assert_array_equal(values, [np.nan, -np.inf, 1.0])
    assert recorder.asked == ["nan", "inf", "a"]
    assert [(model.n_answers, model.n_non_finite) for model in info(store).models] == [(3, 2)]
    vacuum(store)
    assert store.models()[0].n_answers == 3
    vacuum(store, drop_non_finite=True)
    assert [(model.n_answers, model.n_non_finite) for model in info(store).models] == [(1, 0)]
    model.score(["nan", "a"])
    assert recorder.asked[3:] == ["nan"]


def test_a_model_of_which_all_is_dropped_is_forgotten(store: AnswerStore) -> None:
    store.of("m").put(["a"], one(np.nan))
    vacuum(store, drop_non_finite=True)
    assert store.models() == []
    store.of("m").put(["a"], one(1.0, label="other"))


def test_vacuum_gives_space_back(store: AnswerStore) -> None:
    texts = [f"{number} " * 99 for number in range(500)]
    store.of("m").put(texts, Scores(np.full((500, 1), np.nan), ("x",), "raw"))
    before = info(store).n_bytes
    freed = vacuum(store, drop_non_finite=True)
    assert freed > 100_000
    assert info(store).n_bytes == before - freed


@pytest.mark.parametrize("second", [one(1, "y"), one(1, kind="logit")])
def test_a_model_keeps_its_outputs(store: AnswerStore, second: Scores) -> None:
    answers = store.of("m")
    answers.put(["a"], one(1))
    message = r"returned .*; expected x \(raw\), which the store .*answers.sqlite' holds of 'm'\. Use "
    with pytest.raises(ModelError, match=message):
        answers.put(["b"], second)
    assert answers.get(["b"]) == [None]
    answers.put(["c"], one(3))


def test_a_conflict_does_not_block_what_follows(store: AnswerStore) -> None:
    store.of("recorder").put(["a"], one(1))
    model = Stored(Recorder(), store)
    for _ in range(2):
        with pytest.raises(ModelError, match=r"returned length \(raw\); expected x \(raw\)"):
            model.score(["b"])


def test_rows_that_do_not_fit_are_not_stored(store: AnswerStore) -> None:  # R51
    class Short(Recorder):
        def score(self, inputs: Sequence[Query]) -> Scores:
            return super().score(inputs[:1])

    with pytest.raises(ModelError, match="returned 1 rows for 2 texts; expected one each"):
        Stored(Short(), store).score(["a", "b"])
    assert store.models() == []


def test_an_error_of_the_model_loses_nothing(store: AnswerStore) -> None:
    class Failing(Recorder):
        def score(self, inputs: Sequence[Query]) -> Scores:
            if "c" in inputs:
                raise OSError("connection lost")
            return super().score(inputs)

    with pytest.raises(ModelError, match="OSError: connection lost"):
        collect(Stored(Failing(), store), ["a", "b", "c", "d"], batch_size=2)
    recorder = Recorder()
    collect(Stored(recorder, store), ["a", "b", "c", "d"], batch_size=2)
    assert recorder.asked == ["c", "d"]


def test_a_tokenizing_model_stays_one(store: AnswerStore) -> None:
    def words(text: str) -> list[tuple[int, int]]:
        return [(0, len(text))]

    def lengths(texts: list[str]) -> list[int]:
        return list(map(len, texts))

    inner = TokenizingCallable(lengths, tokenizer=words, window=3, mask_token="[M]")
    model = with_store(inner, store)
    assert isinstance(model, BlackBox)
    assert isinstance(model, Tokenizing)
    assert (model.fingerprint, model.mask_token) == (inner.fingerprint, "[M]")
    assert model.token_spans("a film") == [(0, 6)]
    assert model.seen_until(("a film",)) == inner.seen_until(("a film",))
    model.score(["a", "a"])
    assert (model.score(["a"]).values.item(), model.n_asked, model.n_known) == (1.0, 1, 1)
    assert not isinstance(with_store(CallableModel(lengths), store), Tokenizing)


# Threads and processes


def test_threads_ask_each_input_once(store: AnswerStore) -> None:
    barrier, lock, asked = Barrier(32), Lock(), Counter[Query]()

    class Slow(Recorder):
        def score(self, inputs: Sequence[Query]) -> Scores:
            with lock:
                asked.update(inputs)
            Event().wait(0.005)
            return super().score(inputs)

    model = Stored(Slow(), store)

    def work(thread: int) -> bool:
        barrier.wait()
        order = np.random.default_rng(thread).permutation(60)
        texts = ["x" * int(length) for length in order]
        batches = [texts[start : start + 3] for start in range(0, 60, 3)]
        return all(
            model.score(batch).values.ravel().tolist() == list(map(len, batch)) for batch in batches
        )

    with ThreadPoolExecutor(32) as pool:
        assert all(pool.map(work, range(32)))
    assert set(asked.values()) == {1}
    assert (model.n_asked, model.n_known) == (60, 31 * 60)


def test_who_waited_for_a_failure_asks_itself(store: AnswerStore) -> None:
    first_asks, second_waits = Event(), Event()

    class FailsOnce(Recorder):
        def score(self, inputs: Sequence[Query]) -> Scores:
            if not first_asks.is_set():
                first_asks.set()
                second_waits.wait(0.2)
                raise ModelError("down")
            return super().score(inputs)

    model = Stored(FailsOnce(), store)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(model.score, ["a", "b"])
        first_asks.wait()
        second = pool.submit(model.score, ["b", "ccc"])
        with pytest.raises(ModelError, match="down"):
            first.result()
        assert second.result().values.ravel().tolist() == [1, 3]


def run_python(script: str, *arguments: object) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def outcome(process: "subprocess.Popen[str]") -> str:
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    return out


OPEN_AND_ASK = """
import os, sys, time
from pathlib import Path
from piste.sampling.models import CallableModel
from piste.sampling.store import Stored, open_store

path, start = sys.argv[1:]
asked, lines = [], []

def slow(texts):
    asked.extend(texts)
    time.sleep(0.005)
    return [len(text) for text in texts]

children = []
for _ in range(3):  # forked, so that all are ready at the same moment
    if not (child := os.fork()):
        children = []
        break
    children.append(child)
while not Path(start).exists():
    time.sleep(0.001)
with open_store(path) as store:
    model = Stored(CallableModel(slow, fingerprint="slow", kind="raw"), store)
    for length in range(1, 200):
        asked.clear()
        began = time.monotonic_ns()
        assert model.score(["x" * length]).values.item() == length
        if asked:
            lines.append(f"{length} {began} {time.monotonic_ns()}\\n")
os.write(1, "".join(lines).encode())
assert all(os.waitpid(child, 0)[1] == 0 for child in children)
os._exit(0)
"""


def test_processes_share_a_store(path: Path, tmp_path: Path) -> None:
    """Eight make and open it at the same moment, and ask the same texts in the same order."""
    processes = [run_python(OPEN_AND_ASK, path, tmp_path / "start") for _ in range(2)]
    (tmp_path / "start").touch()
    asked: dict[int, list[tuple[int, int]]] = {}
    for line in "".join(map(outcome, processes)).splitlines():
        length, began, known = map(int, line.split())
        asked.setdefault(length, []).append((began, known))
    assert asked.keys() == set(range(1, 200))
    for times in asked.values():  # nobody who looked after an answer was kept asked again
        assert max(began for began, _ in times) <= min(known for _, known in times)
    recorder = Recorder("slow")
    with open_store(path) as store:
        Stored(recorder, store).score(["x" * length for length in asked])
    assert recorder.asked == []


KILLED = """
import hashlib, os, random, signal, sqlite3, sys, time
import numpy as np
import piste
from piste.sampling.models import CallableModel
from piste.sampling.store import open_store, with_store

path, log, n_kills, batch_size = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
text = "It is a gripping film, and yet not one of the best of the year, I think."

def truth(text):
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "little") / 2**48

def slow(texts):
    time.sleep(0.007 * len(texts))
    with open(log, "a") as file:  # an answer counts as paid for before the store can know of it
        file.write("".join(text + "\\n" for text in texts))
    return [truth(text) for text in texts]

def explain():
    if child := os.fork():
        return child
    with open_store(path) as store:
        model = with_store(CallableModel(slow, fingerprint="slow", kind="raw"), store)
        piste.explain(model, text, surrogates="lime", budget=500, batch_size=batch_size, space="raw")
    os._exit(0)

def paid():
    return open(log).read().splitlines()

def check(before):
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()
    with open_store(path) as store:
        stored = {answer.query: answer.values.item() for answer in store.answers()}
    assert all(value == truth(query) for query, value in stored.items())
    assert before.items() <= stored.items()
    assert stored.keys() <= set(paid())
    return stored

rng, stored = random.Random(0), {}
for _ in range(n_kills):
    child = explain()
    time.sleep(rng.uniform(0, 0.4))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    if os.path.exists(path) and os.path.exists(log):
        stored = check(stored)
for _ in range(2):
    assert os.waitpid(explain(), 0)[1] == 0
    stored, last = check(stored), len(paid())
    print(len(stored), len(set(paid())), last)
"""


def test_killed_at_any_moment_it_resumes(path: Path, tmp_path: Path) -> None:  # T14
    n_kills, batch_size = 20, 4
    out = outcome(run_python(KILLED, path, tmp_path / "log", n_kills, batch_size))
    first, second = ([int(number) for number in line.split()] for line in out.splitlines())
    assert first == second  # the run after the one that came to its end sends nothing
    n_stored, n_distinct, n_paid = first
    assert n_stored == n_distinct > 400
    assert n_paid <= n_distinct + n_kills * batch_size


# What can be wrong with a file


def filled(path: Path, n_answers: int = 300) -> bytes:
    with open_store(path) as store:
        values = np.arange(n_answers, dtype=np.float64)[:, None]
        texts = [f"text number {number} " * 9 for number in range(n_answers)]
        store.of("model").put(texts, Scores(values, ("label",), "raw"))
    return path.read_bytes()


def refuse_untouched(path: Path, message: str) -> None:
    content = path.read_bytes()
    with pytest.raises(InputError, match=message) as caught:
        open_store(path)
    assert "\n" not in str(caught.value)
    assert path.read_bytes() == content


NOT_INTACT = r"expected an intact store of piste\. It was left as it is: restore a copy"


@pytest.mark.parametrize("content", [b"text,label\r\n" * 99, b"\0", bytes(5000), b"SQLite format 3"])
def test_a_file_of_another_kind_is_refused(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    refuse_untouched(path, NOT_INTACT)


def test_random_bytes_are_refused(path: Path) -> None:
    path.write_bytes(np.random.default_rng(0).bytes(100_000))
    refuse_untouched(path, f"file is not a database.*{NOT_INTACT}")


def test_a_truncated_store_is_refused_at_any_length(path: Path) -> None:
    content = filled(path)
    for length in [*range(1, 600, 37), *range(600, len(content), 3001), len(content) - 1]:
        path.write_bytes(content[:length])
        refuse_untouched(path, NOT_INTACT)


def test_damaged_pages_never_give_wrong_answers(path: Path) -> None:
    """Noise over 64 bytes anywhere: refused, or, where nothing is kept, all answers as they were."""
    content = filled(path)
    expected = {f"text number {number} " * 9: float(number) for number in range(300)}
    rng, n_refused = np.random.default_rng(0), 0
    for start in rng.integers(0, len(content) - 64, size=60):
        path.write_bytes(content[:start] + rng.bytes(64) + content[start + 64 :])
        try:
            with open_store(path) as store:
                rows = store.of("model").get(list(expected))
                answers = {answer.query: answer.values.item() for answer in store.answers()}
        except InputError:
            n_refused += 1
        else:
            assert answers == expected
            assert [row is not None and row.item() for row in rows] == list(expected.values())
    assert n_refused > 40


def test_damage_beside_a_write_ahead_log_touches_nothing(path: Path) -> None:
    """A process was killed, and its file damaged: opening it must not merge the log into it."""
    filled(path)
    script = """
import os, sys, numpy as np
from piste.sampling.models import Scores
from piste.sampling.store import open_store
store = open_store(sys.argv[1])
store.of("model").put(["new"], Scores(np.ones((1, 1)), ("label",), "raw"))
os._exit(0)
"""
    outcome(run_python(script, path))
    log = path.with_name(path.name + "-wal")
    content, log_content = bytearray(path.read_bytes()), log.read_bytes()
    assert log_content
    content[8192 : 8192 + 2048] = bytes(2048)
    path.write_bytes(content)
    refuse_untouched(path, NOT_INTACT)
    assert log.read_bytes() == log_content


def test_another_programs_database_is_refused(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE answers (key, model)")
    connection.close()
    refuse_untouched(path, "another program's database; expected a store of piste. It was left")


def test_a_newer_store_is_refused(path: Path) -> None:
    filled(path)
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 2")
    connection.close()
    refuse_untouched(path, "of version 2; expected 1 at most. Upgrade piste")


def test_an_empty_file_becomes_a_store(path: Path) -> None:
    path.touch()
    filled(path)


def test_the_making_of_a_store_can_be_cut_short(path: Path, tmp_path: Path) -> None:
    """What SQLite leaves when it is killed while it writes its first pages."""
    script = """
import os, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA cache_size = 1")  # so that pages are written before the commit
connection.execute("BEGIN IMMEDIATE")
for number in range(50):
    connection.execute(f"CREATE TABLE t{number} (a)")
os._exit(0)
"""
    outcome(run_python(script, path))
    assert path.stat().st_size
    assert path.with_name(path.name + "-journal").exists()
    filled(path)


def test_places_that_cannot_hold_a_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"expected a file in an existing folder. Create '.*missing'"):
        open_store(tmp_path / "missing" / "answers.sqlite")
    with pytest.raises(InputError, match="expected a file in an existing folder"):
        open_store(tmp_path)
    with pytest.raises(InputError, match=r"Got no store at '.*none.sqlite'; expected one made by an"):
        open_store(tmp_path / "none.sqlite", must_exist=True)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def unprivileged() -> Iterator[Path]:
    """A folder of a user whom permissions bind, also where the tests run as root."""
    if sys.platform == "win32":
        pytest.skip("needs POSIX permissions")
    root = os.geteuid() == 0
    with TemporaryDirectory() as name:
        os.chmod(name, 0o777)
        if root:
            os.seteuid(65534)
        try:
            yield Path(name)
        finally:
            os.chmod(name, 0o777) if not root else os.seteuid(0)


def test_a_read_only_file_is_refused(unprivileged: Path) -> None:
    path = unprivileged / "answers.sqlite"
    filled(path)
    path.chmod(0o444)
    refuse_untouched(path, "readonly database.*expected a file and a folder that can be written")


@pytest.mark.parametrize("exists", [True, False])
def test_a_read_only_folder_is_refused(unprivileged: Path, exists: bool) -> None:
    folder = unprivileged / "folder"
    folder.mkdir()
    if exists:
        filled(folder / "answers.sqlite")
    folder.chmod(0o555)
    with pytest.raises(InputError, match="expected a file and a folder that can be written"):
        open_store(folder / "answers.sqlite")
    folder.chmod(0)
    with pytest.raises(InputError, match="expected a file and a folder that can be written"):
        open_store(folder / "answers.sqlite")
    folder.chmod(0o777)


def test_answers_are_read_where_nothing_can_be_written(unprivileged: Path) -> None:
    folder = unprivileged / "folder"
    folder.mkdir()
    path = folder / "answers.sqlite"
    with open_store(path) as own:
        own.of("m").put(["a"], one(1))
    path.chmod(0o444)
    folder.chmod(0o555)
    model = open_answers(path)
    assert model.score(["a"]).values.item() == 1
    with open_store(path, writable=False) as own:
        assert own.models()[0].n_non_finite == 0
        with pytest.raises(InputError, match="readonly database"):
            own.of("m").put(["b"], one(2))
    assert [each.name for each in folder.iterdir()] == [path.name]
    folder.chmod(0o777)
    path.with_name(f"{path.name}-wal").write_bytes(b"answers")
    folder.chmod(0o555)
    with pytest.raises(InputError, match=r"in its log 'answers.sqlite-wal'.* Copy both to a folder"):
        open_answers(path)
    folder.chmod(0o777)


def test_a_damaged_file_is_refused_where_nothing_can_be_written(unprivileged: Path) -> None:
    path = unprivileged / "answers.sqlite"
    path.write_bytes(b"SQLite format 3\0" + bytes(5000))
    path.chmod(0o444)
    with pytest.raises(InputError, match="expected an intact store"):
        open_answers(path)


def test_a_full_disk_loses_nothing_and_asks_nothing_more(store: AnswerStore) -> None:
    recorder = Recorder()
    model = Stored(recorder, store)
    model.score(["first"])
    with store.reading() as connection:  # SQLite's own error, as if the disk ended here
        connection.execute("PRAGMA max_page_count = 1").fetchall()
    large = ["x" * 5000, "y" * 5000]
    message = (
        r"database or disk is full' when writing to the store '.*'; every answer stored before is "
        r"safe\. Free some space and run again: only what is missing is asked"
    )
    with pytest.raises(InputError, match=message):
        model.score(large)
    with pytest.raises(InputError, match="disk is full"):
        model.score(["never asked"])
    assert recorder.asked == ["first", *large]
    with store.reading() as connection:
        connection.execute("PRAGMA max_page_count = 1000000").fetchall()
    assert model.score([*large, "first"]).values.ravel().tolist() == [5000, 5000, 5]
    assert recorder.asked == ["first", *large]  # what was paid for while the disk was full is kept now


@pytest.mark.parametrize(
    ("mode", "lock"),
    [("WAL", "BEGIN IMMEDIATE"), ("DELETE", "BEGIN")],  # to write; to become a store with a log
)
def test_a_lock_that_is_never_released_is_said(
    path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, lock: str
) -> None:
    filled(path)
    monkeypatch.setattr("piste.sampling._store_file._TIMEOUT", 0.1)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute(f"PRAGMA journal_mode = {mode}")
        other.execute(lock)
        other.execute("SELECT * FROM answers").fetchone()
        with pytest.raises(InputError, match=r"database is locked' when opening .*another process"):
            open_store(path)
    open_store(path).close()


def test_a_closed_store_says_so(store: AnswerStore) -> None:
    store.close()
    store.close()
    with pytest.raises(InputError, match=r"closed database.* when reading .*expected an open store"):
        store.of("m").get(["a"])


def test_answers_lost_during_a_run(store: AnswerStore) -> None:
    class Dropping(Recorder):
        def score(self, inputs: Sequence[Query]) -> Scores:
            with store.writing() as connection:
                connection.execute("DELETE FROM answers")
            return super().score(inputs)

    model = Stored(Dropping(), store)
    model.score(["a"])
    with pytest.raises(InputError, match="lost answers while it was used"):
        model.score(["a", "b"])


# Which store


def test_default_location(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert default_location() == tmp_path / "xdg" / "piste" / "answers.sqlite"
    for unset in ("", "relative"):
        monkeypatch.setenv("XDG_CACHE_HOME", unset)
        assert default_location() == tmp_path / ".cache" / "piste" / "answers.sqlite"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert default_location() == tmp_path / "Library" / "Caches" / "piste" / "answers.sqlite"
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "local"))
    assert default_location() == tmp_path / "local" / "piste" / "answers.sqlite"


def test_the_default_store_is_made_for_its_user_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with open_store() as store:
        assert store.path == tmp_path / "piste" / "answers.sqlite"
    assert (tmp_path / "piste").stat().st_mode & 0o077 == 0
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(InputError, match=r"Choose a file with store= .*, or 'none'"):
        open_store()


def test_chosen_store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, store: AnswerStore) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with chosen_store(None, remote=False) as none, chosen_store("none", remote=True) as off:
        assert (none, off) == (None, None)
    with chosen_store(None, remote=True) as default:
        assert default is not None
        assert default.path == default_location()
    with chosen_store(tmp_path / "own", remote=False) as own:
        assert own is not None
        assert own.models() == []
    with pytest.raises(InputError, match="closed"):
        own.models()
    with chosen_store(store, remote=False) as given_one:
        assert given_one is store
    assert store.models() == []


# Answers without their model


def test_explaining_with_no_model_at_all(path: Path) -> None:
    text, options = "a good film with a plot", {"surrogates": "lime", "space": "raw", "seed": 3}
    model = CallableModel(lambda texts: [[len(text), "good" in text] for text in texts], kind="raw")
    with open_store(path) as store:
        expected = piste.explain(with_store(model, store), text, **options)  # type: ignore[arg-type]
    study = piste.explain(open_answers(path), text, **options)  # type: ignore[arg-type]
    assert study.attributions.equals(expected.attributions)
    assert study.fingerprint == model.fingerprint


def test_missing_answers_are_counted(store: AnswerStore) -> None:
    store.of("m").put(["a"], one(1))
    model = StoredOnly(store, "m")
    assert isinstance(model, BlackBox)
    assert model.score(["a"]).values.tolist() == [[1.0]]
    message = "2 of 3 texts without a stored answer, first 'b'; expected .*Explain the same texts with"
    with pytest.raises(ModelError, match=message):
        model.score(["b", "a", "c"])


def test_which_model_is_meant(path: Path) -> None:
    with open_store(path) as store:
        with pytest.raises(
            InputError, match=r"Got the model 'n'; the store .* has answers of no model"
        ):
            StoredOnly(store, "n")
        store.of("m", "logit").put(["a"], one(1))
        store.of("n").put(["a"], one(2))
        with pytest.raises(InputError, match=r"has answers of 'm', 'n'. Choose one of them"):
            StoredOnly(store, "o")
    assert open_answers(path, fingerprint="m").score(["a"]).values.item() == 1
    assert open_answers(path, fingerprint="n").score(["a"]).values.item() == 2
    for fingerprint in (None, "o"):
        with pytest.raises(InputError, match=f"fingerprint={fingerprint!r}; .* answers of 'm', 'n'"):
            open_answers(path, fingerprint=fingerprint)
    with pytest.raises(InputError, match="no store at"):
        open_answers(path.with_name("other"))

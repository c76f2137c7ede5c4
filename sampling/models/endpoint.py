"""One address that answers JSON with JSON, and what its failures mean."""

import json
import time
import weakref
from collections.abc import Callable, Sequence
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from piste._errors import ModelError
from piste.sampling.models.limits import Gate, Tokens

if TYPE_CHECKING:
    import httpx

Json = Any
"""JSON as it came from a server: checked where it is read."""

CHARACTERS_PER_TOKEN = 4
_SHORTEST_SECRET = 6  # shorter ones are words and numbers of a message, not keys
_PASSING = {408, 409, 425, 429, 500, 502, 503, 504}
_FINAL = {401, 402, 403, 404, 405, 410, 501}
_ADVICE = {
    401: "Check the key: pass api_key= or set it in the environment.",
    402: "Check the account's credit.",
    403: "Check what the key may do.",
    404: "Check the address and the model's name.",
    405: "Check the address: it takes no POST.",
    429: "Check the account's quota, or lower rpm= and concurrency=.",
    501: "Choose a model that the server can answer this with.",
}


class TransientError(ModelError):
    """A failure that may pass: the request can be sent again, not before ``retry_after`` seconds."""

    def __init__(self, message: str, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class UnreachedError(TransientError):
    """A request that never arrived, so that it cannot have been billed."""


class BrokenAnswerError(TransientError):
    """An answer that breaks the contract: not JSON, or not one row of numbers per text."""


class RefusedError(ModelError):
    """A failure that every further request would meet again."""


class RejectedError(ModelError):
    """The server finds fault with this one request."""


class Endpoint:
    """Sends requests through the gate and turns what comes back into JSON or one of the errors above.

    Parameters
    ----------
    send
        Sends one body to the server; raises httpx's errors.
    gate
        The rates and budgets of the model.
    shown
        The address as messages show it: no key, no password, no query.
    secrets
        What never appears in a message, even where the server repeats it.
    close
        Frees what ``send`` holds; called when the endpoint is no longer used.
    """

    def __init__(
        self,
        send: "Callable[[Json], httpx.Response]",
        gate: Gate,
        *,
        shown: str,
        secrets: Sequence[str] = (),
        close: Callable[[], None],
    ) -> None:
        self._send = send
        self._gate = gate
        self.shown = shown
        self._secrets = tuple(secret for secret in secrets if len(secret) >= _SHORTEST_SECRET)
        weakref.finalize(self, close)

    def post(self, body: object, output_tokens: float = 0.0) -> Json:
        """Send one request; the JSON that it is answered with.

        Parameters
        ----------
        output_tokens
            The most tokens that it can be answered with.

        Raises
        ------
        TransientError, BrokenAnswerError
            If sending it again may help.
        RefusedError
            If nothing more can be sent; the circuit is broken.
        RejectedError
            If the server finds fault with this request.
        """
        estimate = estimated_tokens(body, output_tokens)
        self._gate.enter(estimate)
        billed: Tokens | None = estimate  # a request that breaks off may be billed
        try:
            response = self._answered(body)
            if not 200 <= response.status_code < 300:
                billed = None
                raise self._failure(response)
            try:
                answer = json.loads(response.content)
            except ValueError as error:
                raise BrokenAnswerError(
                    self.told(f"answered with what is not JSON: {response.text[:200]!r}")
                ) from error
            billed = _used(answer) or estimate
        except UnreachedError:
            billed = None
            raise
        finally:
            self._gate.leave(estimate, billed)
        return answer

    def refuse(self, problem: str, advice: str) -> RefusedError:
        """Break the circuit for a problem that every request has; the error to raise."""
        error = RefusedError(f"{self.told(problem)} {advice}")
        self._gate.break_circuit(str(error))
        return error

    def told(self, problem: str) -> str:
        """A sentence about this server without any secret."""
        message = f"The server at {self.shown} {problem.rstrip('. ')}."
        for secret in self._secrets:
            message = message.replace(secret, "***")
        return message

    def _answered(self, body: object) -> "httpx.Response":
        import httpx

        try:
            return self._send(body)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise UnreachedError(
                f"{self.told(f'cannot be reached: {error}')} Check the address, and that it runs."
            ) from error
        except httpx.TimeoutException as error:
            raise TransientError(
                f"{self.told(f'did not answer within {self._gate.limits.timeout:g} seconds')} Raise "
                "timeout= or lower concurrency=."
            ) from error
        except httpx.TransportError as error:
            raise TransientError(self.told(f"broke the connection off: {error}")) from error

    def _failure(self, response: "httpx.Response") -> ModelError:
        status, said = response.status_code, _said(response)
        problem = f"answered {status} {response.reason_phrase}" + (f": {said}" if said else "")
        no_quota = status == 429 and "insufficient_quota" in response.text
        if status in _FINAL or no_quota:
            return self.refuse(problem, _ADVICE.get(status, ""))
        if 300 <= status < 400:
            where = response.headers.get("location", "nowhere")
            return self.refuse(f"{problem}, to {where}", "Give that address instead.")
        if status in _PASSING or status > 504:
            return TransientError(self.told(problem), retry_after(response.headers.get("retry-after")))
        return RejectedError(self.told(problem))


def retry_after(header: str | None) -> float:
    """Seconds to wait as a Retry-After header says: seconds, or a date; 0 where it says nothing.

    >>> retry_after("1.5"), retry_after("soon"), retry_after("Fri, 01 Jan 2016 00:00:00 GMT")
    (1.5, 0.0, 0.0)
    """
    if header is None:
        return 0.0
    try:
        seconds = float(header)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(header).timestamp() - time.time()
        except ValueError:
            return 0.0
    return max(seconds, 0.0) if seconds < float("inf") else 0.0


def estimated_tokens(body: object, output_tokens: float) -> Tokens:
    """A fourth of the characters of a request's strings, as the server's tokenizer is not known.

    >>> estimated_tokens({"inputs": ["a film", "a"], "top_k": 3}, 2)
    Tokens(input=1.75, output=2)
    """
    return Tokens(_characters(body) / CHARACTERS_PER_TOKEN, output_tokens)


def _characters(value: object) -> int:
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(map(_characters, value.values()))
    return sum(map(_characters, value)) if isinstance(value, list) else 0


def _used(answer: object) -> Tokens | None:
    """What the server says it counted, under either of the usual names."""
    usage = answer.get("usage") if isinstance(answer, dict) else None
    if not isinstance(usage, dict):
        return None
    sent = usage.get("prompt_tokens", usage.get("input_tokens"))
    answered = usage.get("completion_tokens", usage.get("output_tokens", 0))
    if not isinstance(sent, int | float):
        return None
    return Tokens(sent, answered if isinstance(answered, int | float) else 0)


def _said(response: "httpx.Response") -> str:
    """The server's own words about an error, on one line."""
    try:
        content = json.loads(response.content)
    except ValueError:
        content = response.text
    for name in ("error", "message", "detail"):
        if isinstance(content, dict) and name in content:
            content = content[name]
    words = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    return " ".join(words.split())[:200]

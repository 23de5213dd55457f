"""Conversations: the messages of a session's turns, exact after framing. All quantities are tokens.

turn 0    head | user 0 | tail
turn 1    head | user 0 | gap | assistant 0 | gap | user 1 | tail
          |<--- shared with turn 0 --->|
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import takewhile

from wlgen.encodings import Framing
from wlgen.plan.request_class import RequestClass
from wlgen.plan.rows import MessagePlan, Segment
from wlgen.streams import Coordinates


class Conversation:
    """The turns of one session's class."""

    def __init__(self, of: RequestClass, frame: Callable[[tuple[str, ...]], Framing]) -> None:
        self._of = of
        self._frame = frame

    def messages(
        self, first: tuple[MessagePlan, ...], turn: int, stream_of: Callable[[int], Coordinates]
    ) -> tuple[MessagePlan, ...]:
        """Return the messages of a turn, given those of turn 0. Each later message has its own stream."""
        session = self._of.requests.session
        if session is None:
            return first
        *prefix, own = first[-1].segments
        opening = Segment(stream=stream_of(0), ordinal=own.ordinal, tokens=own.tokens, kind="message")
        messages = [*first[:-1], MessagePlan(role="user", segments=(*prefix, opening))]
        for number in range(1, 2 * turn + 1):
            role, tokens = (
                ("user", session.user_len) if number % 2 == 0 else ("assistant", session.assistant_len)
            )
            segment = Segment(stream=stream_of(number), ordinal=own.ordinal, tokens=tokens, kind="message")
            messages.append(MessagePlan(role=role, segments=(segment,)))
        return tuple(messages)

    def prompt_len(self, messages: tuple[MessagePlan, ...]) -> int:
        """Return the tokens of a prompt of these messages, framing included."""
        return sum(m.tokens for m in messages) + self._frame(tuple(m.role for m in messages)).tokens

    def shared_len(self, messages: tuple[MessagePlan, ...]) -> int:
        """Return the tokens that a turn shares with the turn before: its messages and a part of its tail."""
        before = messages[:-2]
        gaps = self._frame(tuple(m.role for m in messages)).ids
        tail = self._frame(tuple(m.role for m in before)).ids[-1]
        kept = sum(
            1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(tail, gaps[len(before)], strict=False))
        )
        return sum(map(len, gaps[: len(before)])) + sum(m.tokens for m in before) + kept

"""Common English words by part of speech, and patterns of sentences, for text that reads like language."""

from __future__ import annotations


def _split(text: str) -> tuple[str, ...]:
    return tuple(text.split())


ADJECTIVES = _split(
    """
    quiet small old bright green heavy narrow gentle cold warm early late deep clear simple steady broad tall
    short young modern ancient distant local public private careful patient honest curious friendly serious
    famous common rare fresh dry wet soft hard smooth rough round flat empty full open closed hidden visible
    strong weak rich poor light dark blue red yellow white black brown golden silver wooden wild calm busy
    lonely proud humble brave wise clever useful practical natural formal final central northern southern
    eastern western inner outer upper lower
    """
)
NOUNS = _split(
    """
    river garden teacher farmer doctor captain writer painter student engineer driver baker judge soldier
    neighbor traveler merchant sailor hunter singer worker builder manager editor reader visitor guest child
    family village market bridge castle church school library museum station harbor factory kitchen window
    table letter book paper picture map clock lamp candle mirror basket bottle ladder hammer engine wagon
    boat ship train wheel stone brick rope chain coat hat shoe ring coin key box chair door wall roof tower
    field forest mountain valley island lake ocean beach storm cloud rain snow wind fire smoke morning
    evening summer winter harvest journey story song question answer plan rule record report signal price
    """
)
VERBS = _split(
    """
    watched carried found opened painted repaired measured followed crossed visited remembered described
    studied collected cleaned moved covered filled joined held kept left met noticed ordered passed placed
    pulled pushed raised reached returned saved served showed shared started stopped tested touched turned
    used wanted washed helped loved built bought brought caught chose drew heard knew learned lost made
    paid read saw sent sold took taught
    """
)
PLACES = _split(
    """
    river garden village market bridge castle church school library museum station harbor factory kitchen
    field forest mountain valley island lake beach road street square corner gate yard park farm hill port
    city town house hall tower border
    """
)
PREPOSITIONS = ("near", "behind", "beside", "beyond", "under", "above", "around", "outside")
CONJUNCTIONS = ("before", "after", "while", "because", "although", "until")

# A slot is a tuple of words to choose from. Every pattern has SENTENCE_TOKENS slots, so that the length of a
# text says where its sentences end: 50 tokens are 3 whole sentences and 2 tokens of a fourth.
SENTENCE_TOKENS = 16
_A, _N, _V, _P, _PREP, _CONJ = ADJECTIVES, NOUNS, VERBS, PLACES, PREPOSITIONS, CONJUNCTIONS
_THE, _CAP, _STOP, _COMMA, _AND = ("the",), ("The",), (".",), (",",), ("and",)
PATTERNS: tuple[tuple[tuple[str, ...], ...], ...] = (
    (_CAP, _A, _N, _V, _THE, _N, _PREP, _THE, _A, _P, _CONJ, _THE, _A, _N, _V, _STOP),
    (_CAP, _N, _AND, _THE, _A, _N, _V, _THE, _A, _N, _PREP, _THE, _A, _A, _P, _STOP),
    (
        ("Near", "Behind", "Beside"),
        _THE,
        _A,
        _P,
        _COMMA,
        _THE,
        _A,
        _N,
        _V,
        _THE,
        _N,
        _AND,
        _THE,
        _A,
        _N,
        _STOP,
    ),
    (("When", "While", "After"), _THE, _N, _V, _THE, _A, _N, _COMMA, _THE, _N, _V, _THE, _A, _A, _N, _STOP),
    (("Every", "Another", "No"), _A, _N, _PREP, _THE, _P, _V, _THE, _N, _CONJ, _THE, _N, _V, _THE, _N, _STOP),
    (_CAP, _A, _N, _V, _THE, _N, _COMMA, _V, _THE, _A, _N, _AND, _V, _THE, _N, _STOP),
)

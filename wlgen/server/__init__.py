"""A live server, or a prefill/decode pair: it is asked what it is, primed with seeds, proved with checks."""

"""A live server: asked what it is, primed with a set's seeds and proved with its checks."""

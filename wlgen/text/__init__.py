"""Text whose tokens are known: English words that each stay one token, whatever stands beside them.

What other rooms import of it:
lexicon  words that are one token each and whose joins never merge
english  English words by part of speech
splits   where a pre-tokenizer splits, known from its structure
"""

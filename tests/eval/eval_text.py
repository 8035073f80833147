"""Three tasks of 240 items, made of share/tom-sawyer.txt: Mark Twain, The Adventures of Tom Sawyer
(1876), the beginning of chapter I; public domain. Nothing is drawn at random: the items are a
function of the text.

    phrases   which of four phrases of four words goes on (multiple choice)
    words     which of two words comes next (multiple choice)
    passages  the perplexity of passages of 30 words (rolling)
"""
import os

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
N_ITEMS = 240
CONTEXT_WORDS, PHRASE_WORDS, PASSAGE_WORDS = 12, 4, 30


def words():
    with open(os.path.join(ROOT, "share", "tom-sawyer.txt"), encoding="utf-8") as file:
        return file.read().split()


def starts(n, last):
    """Places of n items, spread over the text."""
    return [i * last // n for i in range(n)]


def phrases(n=N_ITEMS):
    text = words()
    items = []
    for number, at in enumerate(starts(n, len(text) - CONTEXT_WORDS - PHRASE_WORDS)):
        cut = at + CONTEXT_WORDS
        right = " ".join(text[cut:cut + PHRASE_WORDS])
        choices = []
        for step in (397, 811, 1229):  # far from the place and from each other
            other = (cut + step) % (len(text) - PHRASE_WORDS)
            choices.append(" ".join(text[other:other + PHRASE_WORDS]))
        answer = number % 4
        choices.insert(answer, right)
        items.append({"context": " ".join(text[at:cut]), "choices": choices, "answer": answer})
    return items


def next_words(n=N_ITEMS):
    text = words()
    items = []
    for number, at in enumerate(starts(n, len(text) - CONTEXT_WORDS - 1)):
        cut = at + CONTEXT_WORDS
        other = (cut + 607) % len(text)
        while text[other] == text[cut]:
            other = (other + 1) % len(text)
        answer = number % 2
        choices = [text[other]]
        choices.insert(answer, text[cut])
        items.append({"context": " ".join(text[at:cut]), "choices": choices, "answer": answer})
    return items


def passages(n=N_ITEMS):
    text = words()
    return [{"text": " ".join(text[at:at + PASSAGE_WORDS])}
            for at in starts(n, len(text) - PASSAGE_WORDS)]

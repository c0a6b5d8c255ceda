"""stores.py: reads ../stores, the list of stores, for the scripts beside it. What each key means stands there."""
import collections
import os


def read(root):
    """{store: {key: [word, ...]}}; of packages only their names."""
    stores = {}
    with open(os.path.join(root, "stores"), encoding="utf-8") as f:
        for line in f:
            words = line.split()
            if not words or line.startswith("#"):
                continue
            about = stores.setdefault(words[0], collections.defaultdict(list))
            about[words[1]] += words[2:3] if words[1].startswith("for-") else words[2:]
    return stores

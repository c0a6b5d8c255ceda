import json, os
class Wrong(Exception):
    pass
def save(path, data):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path + ".new", "w", encoding="utf-8") as f:
        json.dump(data, f, indent=1, sort_keys=True)
        f.write("\n")
    os.replace(path + ".new", path)
def write(data, root, out):
    pass

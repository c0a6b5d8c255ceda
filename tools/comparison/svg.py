"""svg.py: a drawing, written by hand. It brings a light background of its own, so that it can be read on any page."""
from xml.sax.saxutils import escape

INK, PALE, GRID, PAPER = "#1f2933", "#52606d", "#d9dee4", "#fcfcfb"
FONT = "font-family=\"system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif\""
COLOURS = ["#1b6ca8", "#c2410c", "#7c3aed", "#15803d", "#be123c", "#334155", "#db2777", "#0e7490", "#a16207", "#4d7c0f",
           "#6d4c41", "#3730a3"]
LETTER = 0.56  # its width, beside its height: enough for all fonts


def number(x):
    """Short, and the same everywhere."""
    return f"{x:.1f}".rstrip("0").rstrip(".")


def wrapped(text, width, size):
    """The text in lines of at most so many pixels."""
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if len(longer) * size * LETTER > width and lines[-1]:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines


class Drawing:
    def __init__(self, width, height, title):
        self.width, self.height = width, height
        self.parts = [f'<title>{escape(title)}</title>']
        self.rect(0.5, 0.5, width - 1, height - 1, fill=PAPER, stroke=GRID, radius=8)

    def rect(self, x, y, w, h, fill="none", stroke="none", radius=0, dash=""):
        self.parts.append(f'<rect x="{number(x)}" y="{number(y)}" width="{number(max(w, 0))}" height="{number(h)}" rx="{radius}" '
                          f'fill="{fill}" stroke="{stroke}"' + (f' stroke-dasharray="{dash}"' if dash else "") + "/>")

    def line(self, x1, y1, x2, y2, colour=GRID, width=1, dash=""):
        self.parts.append(f'<line x1="{number(x1)}" y1="{number(y1)}" x2="{number(x2)}" y2="{number(y2)}" stroke="{colour}" '
                          f'stroke-width="{width}"' + (f' stroke-dasharray="{dash}"' if dash else "") + "/>")

    def path(self, points, colour, dash=""):
        at = " ".join(f"{number(x)},{number(y)}" for x, y in points)
        self.parts.append(f'<polyline points="{at}" fill="none" stroke="{colour}" stroke-width="2" stroke-linejoin="round"'
                          + (f' stroke-dasharray="{dash}"' if dash else "") + "/>")

    def dot(self, x, y, colour):
        self.parts.append(f'<circle cx="{number(x)}" cy="{number(y)}" r="3.5" fill="{colour}"/>')

    def text(self, x, y, text, size=12, anchor="start", colour=INK, weight="normal", turn=None):
        how = f' transform="rotate({turn} {number(x)} {number(y)})"' if turn is not None else ""
        self.parts.append(f'<text x="{number(x)}" y="{number(y)}" font-size="{size}" text-anchor="{anchor}" fill="{colour}" '
                          f'font-weight="{weight}"{how}>{escape(text)}</text>')

    def arrow(self, x1, y1, x2, y2):
        """Straight, with its head at the second point."""
        self.line(x1, y1, x2, y2, PALE, 1.5)
        head = [(x2 - 7, y2 - 4), (x2, y2), (x2 - 7, y2 + 4)] if y1 == y2 else [(x2 - 4, y2 - 7), (x2, y2), (x2 + 4, y2 - 7)]
        at = " ".join(f"{number(x)},{number(y)}" for x, y in head)
        self.parts.append(f'<polygon points="{at}" fill="{PALE}"/>')

    def done(self):
        return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width}" height="{number(self.height)}" '
                f'viewBox="0 0 {self.width} {number(self.height)}" role="img" {FONT}>\n' + "\n".join(self.parts) + "\n</svg>\n")

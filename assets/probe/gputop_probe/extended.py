"""Finds tensors that are made longer again and again, such as `history = torch.cat([history, x])`:
their number stays the same.

A tensor that is larger at each look proves nothing: batches may be sorted by length. It is a leak
only if a line of the program concatenates the name that holds it. Pure logic: no torch, no clock,
no gc.
"""

from . import causes, code_lines

# So many looks in a row must find the tensor larger than before.
LOOKS = 3
# Fewer bytes are no candidates. At most so many candidates are looked up.
LEAST, MOST = 512, 16


class Extended:
    def __init__(self):
        # By device: sizes of the tensors at the last look.
        self._sizes = {}
        # The holder's text: [(step, seconds, bytes)], oldest first.
        self._looks = {}
        # The last looks that found nothing longer.
        self._missed = 0
        self.leaks = []

    def candidates(self, sizes):
        """Returns the positions of the tensors whose size is new since the last look, the largest
        first.

        `sizes` are the devices and bytes of all tensors: [(device, bytes)].
        """
        before, now = self._sizes, {}
        for device, size in sizes:
            now.setdefault(device, set()).add(size)
        self._sizes = now
        new = [
            at
            for at, (device, size) in enumerate(sizes)
            if size >= LEAST and device in before and size not in before[device]
        ]
        return sorted(new, key=lambda at: -sizes[at][1])[:MOST]

    def take(self, step, seconds, found):
        """Takes the holders of the candidates: [(holder, bytes, fields of the leak)]. Fills
        `leaks`.
        """
        self._missed = 0 if found else self._missed + 1
        if 0 < self._missed < LOOKS:
            # No device had more memory than before at this look.
            return
        before, self._looks, self.leaks = self._looks, {}, []
        for holder, size, fields in found:
            line = code_lines.concatenating_line(holder.codes, holder.name)
            if line is None or holder.text in self._looks:
                continue
            looks = [look for look in before.get(holder.text, []) if look[2] < size]
            looks = looks if len(looks) == len(before.get(holder.text, [])) else []
            self._looks[holder.text] = looks = looks[-2 * LOOKS :] + [(step, seconds, size)]
            if len(looks) > LOOKS:
                self.leaks.append(_leak(holder, line, looks, fields))


def _leak(holder, line, looks, fields):
    (first_step, first_seconds, least), (step, seconds, most) = looks[0], looks[-1]
    # The program's own line says more than one of a library.
    line = holder.line if "library" in holder.via and holder.line else line
    title, advice = causes.explain("extended", causes.Facts(holder=holder, line=line))
    found = dict(
        fields, bytes=most, held_by=[holder.text], cause="extended", title=title, advice=advice
    )
    # A bounded buffer that is still filled looks the same.
    found["sure"] = "likely" if step > first_step else "maybe"
    if step > first_step:
        found.update(
            bytes_per_step=round((most - least) / (step - first_step)),
            count_per_step=0,
            steps=step - first_step,
            oldest_step=first_step,
        )
    if seconds > first_seconds:
        found["bytes_per_second"] = round((most - least) / (seconds - first_seconds))
    return found

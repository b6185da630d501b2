"""How rows use the memory of a device: decided before the first round, and printable."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gbun.data.columns import SCALED
from gbun.data.features import Features
from gbun.devices import Device
from gbun.kernels.batches import Room, has_columns, room_for, there_of
from gbun.kernels.portable import RUN
from gbun.kernels.underway import AHEAD
from gbun.memory import SHARE_OF_FREE, megabytes
from gbun.networks import Family

OUTPUTS = 2**23  # outputs of a batch: 32 MB, enough for any device to be busy
GOOD_ROWS, FEW_ROWS = 2**12, 2**8  # of a batch that keeps a device busy, and of one that is still of use
HASHED = 2**20  # weights of sparse features that the portable kernels make at a time
HEADS = 2**22  # bytes of rounds, heads and all, that are on a device at a time: too little to plan for
GRAIN = 512  # bytes: no array of a device takes less, or anything between two multiples
TABLE = 2**23  # weights of dense columns that are made at a time
ENTRY_BYTES, ROW_BYTES = 12, 8  # of a sparse entry: two words and a value; of a row: where its entries begin
SCORE_BYTES = 80  # of a score while derivatives are made of it
WEIGHT_BYTES = 11  # of a weight that is made: it, its hash, and whether it revives an output
WAITING = 16  # batches whose moments may still be on the device
PLACE_BYTES = 32  # of an entry while its weights are made: which row it belongs to
SCALED_BYTES = 40  # of a number of a dense column while it is scaled


# Features stay, outputs are held, rows of a batch at least: what is tried, one after the other.
WAYS = (
    (True, True, GOOD_ROWS),
    (True, False, GOOD_ROWS),
    (False, False, GOOD_ROWS),
    (True, False, FEW_ROWS),
    (False, False, 1),
)


class TooLittle(ValueError):
    """A budget that no plan keeps; `n_bytes` are what the smallest needs."""

    def __init__(self, message: str, n_bytes: int) -> None:
        super().__init__(message)
        self.n_bytes = n_bytes


@dataclass(frozen=True)
class Placement:
    """Where some rows are: on the device for good, or sent there batch by batch; and how large a batch is."""

    resident: bool
    room: Room
    n_bytes: int


@dataclass(frozen=True)
class DevicePlan:
    """What is on the device, within `budget` bytes. `hold`: an n x K buffer keeps Z and P from pass to pass."""

    device: str
    n_rows: int
    n_outputs: int
    n_scores: int
    hold: bool
    placement: Placement
    n_threads: int
    gram_share: float
    budget: int
    parts: tuple[tuple[str, int], ...]
    ahead: bool = False
    form: str = "auto"

    @property
    def gram_rows(self) -> int:
        """Rows, on average and at most, that the Hessian sums are made of."""
        return round(self.gram_share * self.n_rows)

    @property
    def n_bytes(self) -> int:
        return sum(size for _, size in self.parts)

    @property
    def left(self) -> int:
        """Bytes that evaluation sets may still take."""
        return max(0, self.budget - self.n_bytes)

    def __str__(self) -> str:
        passes = "kept in a buffer" if self.hold else "made again in each pass"
        where = "stay there" if self.placement.resident else "are sent there in each pass"
        lines = [
            f"{self.n_rows:,} rows on {self.device}, K = {self.n_outputs}, {self.n_scores} score(s) a row: network "
            f"outputs are {passes}",
            f"  features {where}, in batches of up to {self.placement.room.rows:,} rows",
            f"  P'HP is made of {self.gram_rows:,} rows a round, P'G of all",
            *(f"  {name:<42}{megabytes(size):>12}" for name, size in self.parts),
            f"  {'together, of ' + megabytes(self.budget) + ' to use':<42}{megabytes(self.n_bytes):>12}",
        ]
        return "\n".join(lines)


def make_device_plan(
    features: Features,
    n_outputs: int,
    n_scores: int,
    n_threads: int,
    device: Device,
    *,
    memory_budget: int | None = None,
    line_search: bool = False,
    n_grams: int = 1,
    exact: bool = False,
    gram_share: float = 1.0,
    watched: Sequence[Features] = (),
    score_bytes: int = SCORE_BYTES,
    ahead: bool = False,
) -> DevicePlan:
    """The fastest plan that fits: first the buffer is given up, then features are sent, then batches are made small."""
    n, K, C = features.n_rows, n_outputs, n_scores
    budget = int(SHARE_OF_FREE * device.free_bytes()) if memory_budget is None else memory_budget
    number = 8 if device.has_float64 else 4
    # Evaluation sets have their scores there, and at least what one batch of theirs needs.
    others = sum(smallest(w, K, C, device).n_bytes for w in watched)
    # Of the sums: the total, a batch's part, which several Hessians make one by one, and it in the total's dtype.
    part = (8 if exact else 4) * (2 if n_grams > 1 else 1)
    needed = {
        "scores, targets and weights": number * n * (2 * C + 2) + (4 * n * C if line_search else 0),
        "sums of the normal equations": (2 * number + part) * (n_grams * K * K + K * C),
        "evaluation sets": others,
    }

    def parts(placement: Placement, hold: bool) -> tuple[tuple[str, int], ...]:
        rows = placement.room.rows
        own = {
            "features": placement.n_bytes,
            "network outputs, then memberships": 4 * K * n * (AHEAD if ahead else 1) if hold else 0,
            "a batch while it is computed": working_bytes(features, placement.room, K, C, exact, score_bytes)
            + (8 * rows * K if gram_share < 1.0 else 0)
            + 4 * K * (WAITING + 1) * (2 * (rows // RUN + 1) + 1),
        }
        return tuple((name, size) for name, size in (needed | own).items() if size)

    sizes = []
    for resident, hold, least_rows in WAYS:
        for placement in placements(features, K, C, resident, device, least_rows):
            listed = parts(placement, hold)
            sizes.append(sum(size for _, size in listed))
            if sizes[-1] <= budget:
                return DevicePlan(device.name, n, K, C, hold, placement, n_threads, gram_share, budget, listed, ahead)
    raise TooLittle(
        f"memory_budget must be at least {min(sizes)} bytes of {device.name!r} for {n:,} rows, K = {K} and {C} "
        f"score(s) a row, got {budget} bytes{'' if memory_budget else ', half of what is free'}; a smaller n_neurons "
        "needs less",
        min(sizes),
    )


def placements(
    features: Features, K: int, C: int, resident: bool, device: Device, least_rows: int = 1
) -> Iterator[Placement]:
    """Batches that become smaller and smaller, of features that stay on the device, or of which it holds two batches.

    Features that are there already cost what is made of them; columns then never have to be sent.
    """
    n, most_rows = features.n_rows, max(FEW_ROWS, OUTPUTS // max(K, 10 * C))
    there = resident and there_of(features, device) is not None
    if features.dense is not None and has_columns(features, device):
        if not resident:
            return
        there, columns = True, max(1, int(features.dense.shape[1]))
        most_rows = min(most_rows, max(FEW_ROWS, OUTPUTS // columns))  # a batch must not be a copy of them all
    batches = max(1 if resident else 2, -(-n // most_rows))
    whole = Room(n, _entries(features))
    while True:
        room = room_for(features, batches, most_rows)
        if there:
            n_bytes = made_bytes(features, whole, room)
        else:
            n_bytes = feature_bytes(features, whole) if resident else 2 * feature_bytes(features, room)
        yield Placement(resident, room, n_bytes)
        if batches * least_rows >= n:
            return
        batches *= 2


def place(features: Features, K: int, C: int, budget: int, device: Device) -> Placement:
    """Where rows that are only predicted go, with their scores, within `budget` bytes; the smallest batches where that
    is too little."""
    least, scores = smallest(features, K, C, device), stored_scores(features.n_rows, C, device)
    for resident in (True, False):
        for placement in placements(features, K, C, resident, device):
            if placement.room.rows < least.room.rows:
                break
            if placement.n_bytes + working_bytes(features, placement.room, K, C, False) + scores <= budget:
                return placement
    return least


def smallest(features: Features, K: int, C: int, device: Device) -> Placement:
    """Batches as small as is still of use, and what rows that are only predicted then need with their scores."""
    room = room_for(features, max(1, -(-features.n_rows // FEW_ROWS)), FEW_ROWS)
    whole = Room(features.n_rows, _entries(features))
    return Placement(has_columns(features, device), room, _needed(features, whole, room, K, C, device))


def most_bytes(features: Features, K: int, C: int, device: Device) -> int:
    """What predictions use at most, however much there is."""
    first = next(placements(features, K, C, True, device))
    scores = stored_scores(features.n_rows, C, device)
    return first.n_bytes + working_bytes(features, first.room, K, C, False) + scores


def least_bytes(features: Features, family: Family, C: int, n_rounds: int, device: Device) -> int:
    """What predictions need where FEW_ROWS rows, whichever, are predicted at a time."""
    n, K = min(features.n_rows, FEW_ROWS), family.n_outputs
    entries = 0
    if features.sparse is not None:
        indptr = features.sparse.indptr
        entries = int((indptr[n:] - indptr[: len(indptr) - n]).max(initial=0))
    own = round_bytes(family, C)
    room = Room(n, entries)
    return _needed(features, room, room, K, C, device) + min(n_rounds * own, max(HEADS, own))


def _needed(features: Features, rows: Room, room: Room, K: int, C: int, device: Device) -> int:
    """Bytes for predictions of some rows in batches."""
    there = has_columns(features, device)
    own = made_bytes(features, rows, room) if there else 2 * feature_bytes(features, room)
    return own + working_bytes(features, room, K, C, False) + stored_scores(rows.rows, C, device)


def stored_scores(n: int, C: int, device: Device) -> int:
    return (8 if device.has_float64 else 4) * n * C


def round_bytes(family: Family, C: int) -> int:
    """Of a round that is applied to rows: head, centre, factor, where hashes begin, and what revives outputs."""
    K = family.n_outputs
    sizes = [4 * K * C, 4 * K, 4 * K]
    for density in (family.density, family.sparse_density):
        sizes += [4 * K] if density == 1.0 else [4 * K, 8 * K, *6 * [4 * K]]
    return sum(-(-size // GRAIN) * GRAIN for size in sizes)


def feature_bytes(features: Features, room: Room) -> int:
    dense = 0 if features.dense is None else 4 * features.dense.shape[1] * room.rows
    return dense + (0 if features.sparse is None else ENTRY_BYTES * room.entries + ROW_BYTES * (room.rows + 1))


def made_bytes(features: Features, rows: Room, room: Room) -> int:
    """Of rows that stay where the device has them: a batch of scaled columns; where rows begin, and scaled values."""
    if features.dense is None:
        return 4 * rows.entries + ROW_BYTES * (rows.rows + 1)
    columns = int(features.dense.shape[1])
    return feature_bytes(features, room) + SCALED_BYTES * min(room.rows * columns, max(SCALED, columns))


def working_bytes(features: Features, room: Room, K: int, C: int, exact: bool, score_bytes: int = SCORE_BYTES) -> int:
    """Of a batch: its outputs, a copy of them and what a softmax needs, derivatives, weights made on the way."""
    size = (26 if exact else 10) * room.rows * K + score_bytes * room.rows * C
    if features.dense is not None:
        size += WEIGHT_BYTES * min(features.dense.shape[1] * K, TABLE)
    if features.sparse is not None:
        at_a_time = max(1, min(room.entries, HASHED // K))
        size += (WEIGHT_BYTES * K + PLACE_BYTES) * at_a_time
    return size


def _entries(features: Features) -> int:
    return 0 if features.sparse is None else len(features.sparse.ids)

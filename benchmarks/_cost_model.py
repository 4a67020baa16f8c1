"""The cost model of docs/cost_model.md as a function: seconds of a fit on a cluster.

Flops, rows and bytes are those of the tables there; the constants are measured on one thread.
"""

from dataclasses import dataclass

from ._simulated import HOPS, HOPS_OF_A_LEVEL, HOPS_OF_STATE, Network

CANDIDATES = 512  # of a round
FAN_IN = 8
PASSES, PASSES_OF_PIVOTS = 4, 7  # of a fit on a random basis; on pivots, beside the rounds


@dataclass(frozen=True)
class Constants:
    """What one thread does, in this kind of work, and what the client does between passes."""

    entries: float  # of X that are checked, a second
    pivots: float  # flop/s while columns are appended
    sums: float  # flop/s while Z'Z is added up
    kept_sums: float  # the same, where the basis left its columns
    round: float  # seconds of the client between two passes of the choice
    solve: float  # seconds of the client after the sums


@dataclass(frozen=True)
class Job:
    """A fit: rows, features, points, threads, and rounds of the choice (0: a random basis)."""

    rows: float
    features: int
    points: int
    threads: int
    rounds: int = 0

    @property
    def choice_flops(self) -> float:
        """Flops of pivoted Cholesky; none of a random basis."""
        return self.flops_until(self.points) if self.rounds else 0.0

    def flops_until(self, points: int) -> float:
        """Flops of pivoted Cholesky until it has so many points."""
        return self.rows * points * (points + 2 * self.features)

    @property
    def sums_flops(self) -> float:
        """Flops of the sums; columns that the choice left are not computed again."""
        square = self.rows * self.points**2
        if self.rounds:
            return square
        return 2 * square + 2 * self.rows * self.points * (self.features + 2)


def computing(job: Job, by: Constants) -> float:
    """Seconds that every thread computes."""
    sums = job.sums_flops / (by.kept_sums if job.rounds else by.sums)
    look = job.rows * job.features / by.entries
    return (look + job.choice_flops / by.pivots + sums) / job.threads


def travelling(job: Job, network: Network) -> float:
    """Seconds of messages and bytes: results go through levels of eight, the last to the client."""
    r, d, w = job.points, job.features, job.threads
    levels, last = 0, w
    while last > FAN_IN:
        levels, last = levels + 1, -(-last // FAN_IN)
    into = (FAN_IN - 1) * levels + last  # results that go into a machine, one after the other
    passes = PASSES_OF_PIVOTS + job.rounds if job.rounds else PASSES
    messages = passes * (HOPS + levels * HOPS_OF_A_LEVEL)
    if job.rounds:  # the first pass, the rounds and what follows the last one
        messages += (job.rounds + 2) * HOPS_OF_STATE
    sums = 8 * (r + 2) ** 2 * into + 8 * r * (r + d) * min(w, FAN_IN)
    each = min(CANDIDATES, 2 * -(-CANDIDATES // w) + 32)
    offers = job.rounds * 8 * each * (d + r / 2) * into
    pivots = 8 * (r * d + r * r / 2) * min(w, FAN_IN) if job.rounds else 0.0
    return messages * network.latency + (sums + offers + pivots) / network.bandwidth


def predict(job: Job, by: Constants, network: Network, lost_at: tuple[int, ...] = ()) -> float:
    """Seconds of a fit; ``lost_at`` are the points chosen when machines were lost.

    Another machine repeats what the first lost one had done and has double work from then on, so
    all of a machine's work is added. For every further one, whose work goes to yet another
    machine, only the repetition is.
    """
    mine = computing(job, by)
    client = job.rounds * by.round + by.solve
    again = [job.flops_until(k) / by.pivots / job.threads for k in lost_at[1:]]
    extra = (mine if lost_at else 0.0) + sum(again)
    return mine + extra + client + travelling(job, network)

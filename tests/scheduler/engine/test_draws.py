"""An objective's reports count only under the draws that were accepted of its trial."""

from __future__ import annotations

from dataclasses import replace

import pytest
from penstock.app.ledger.codec import decode, encode, state_to_json
from penstock.base.draws import digest_of
from penstock.scheduler.engine.engine import Engine, Unfit
from penstock.scheduler.model.events import TrialReturned
from penstock.scheduler.model.writing import Suggestion, Writing
from worlds.local_world import Kept, local

NOTE = Writing(user_attrs=(("note", '"mine"'),))
X, Y = Suggestion("x", 0.5, "{}", 0.5), Suggestion("y", 2, "{}", 2.0)
OTHER_X = Suggestion("x", 0.7, "{}", 0.7)


def digest(*drawn):
    return digest_of(each.draw for each in drawn)


class Objective(Kept):
    """One trial after the other, whose objective draws and reports."""

    @property
    def at_work(self):
        return self.open[min(self.open)]

    def draw(self, *suggestions, drawn):
        segment = self.at_work.segment
        writing = Writing(suggestions=suggestions)
        self.write(segment.trial, fence=segment.fence, writing=writing, draws_digest=drawn)

    def report(self, epoch, drawn):
        event = replace(self.epoch(self.at_work, epoch), draws_digest=drawn, closes=False)
        self.send(event)

    def return_under(self, drawn, **fields):
        segment = self.at_work.segment
        names = {"trial": segment.trial, "fence": segment.fence, "draws_digest": drawn}
        self.send(TrialReturned(at=self.at, value=1.0, **names | fields))

    def lose(self):
        self.send(self.lost(self.at_work, "gone"))

    @property
    def trial(self):
        return self.engine.state.trials["s-1-0000"]


@pytest.fixture
def world():
    """One slot; the first trial has drawn x and reported an epoch under it."""
    world = Objective()
    world.submit(local())
    world.join("cpu.a.0")
    world.draw(X, drawn=digest(X))
    world.report(1, digest(X))
    yield world
    replayed = Engine()
    for event in world.journal:
        replayed.handle(decode(*encode(event)))
    assert state_to_json(replayed.state) == state_to_json(world.engine.state)


def test_the_next_attempt_gets_what_was_accepted_with_its_task(world):
    world.draw(Y, drawn=digest(X, Y))
    assert world.at_work.suggestions == (), "nothing was accepted when the first attempt began"
    world.lose()
    assert world.at_work.suggestions == (X, Y)
    assert world.at_work.segment.first == 2


@pytest.mark.parametrize("other", [OTHER_X, replace(X, distribution="[]")])
def test_a_draw_that_differs_from_an_accepted_one_is_refused(world, other):
    with pytest.raises(Unfit, match=r"x = 0\.\d was drawn for s-1-0000, which has x = 0\.5"):
        world.draw(other, Y, drawn=digest(other, Y))
    assert world.trial.params == (("x", 0.5),)
    assert world.trial.suggestions == (X,)


def test_a_draw_that_is_reported_twice_at_once_and_differs_is_refused(world):
    with pytest.raises(Unfit, match="y = 3 was drawn for s-1-0000, which has y = 2"):
        world.draw(Y, replace(Y, value=3, internal=3.0), drawn="")
    assert world.trial.suggestions == (X,)


def test_an_older_worker_says_no_digest_and_its_draws_may_not_differ_either(world):
    with pytest.raises(Unfit):
        world.draw(OTHER_X, drawn="")
    world.draw(X, Y, drawn="")
    world.report(2, None)
    assert world.trial.suggestions == (X, Y)
    assert world.trial.epoch == 2


def test_a_draw_that_is_said_again_changes_nothing(world):
    world.draw(X, drawn=digest(X))
    assert world.trial.suggestions == (X,)
    world.report(2, digest(X))
    assert world.trial.epoch == 2


def test_an_epoch_under_draws_that_were_not_accepted_is_refused(world):
    for drawn in (digest(), digest(OTHER_X), digest(X, Y)):
        with pytest.raises(Unfit, match="s-1-0000 has other parameters"):
            world.report(2, drawn)
    assert world.trial.epoch == 1


@pytest.mark.parametrize("fields", [{}, {"pruned": True}, {"constraints": (("c", 1.0),)}])
def test_what_an_objective_returns_under_other_draws_is_refused(world, fields):
    with pytest.raises(Unfit):
        world.return_under(digest(X, Y), **fields)
    assert (world.trial.state, world.trial.value) == ("running", 0.0)
    world.return_under(digest(X), **fields)
    assert world.trials["s-1-0000"].state in ("completed", "stopped")


def test_what_an_objective_returns_is_refused_where_a_report_before_it_was_lost(world):
    with pytest.raises(Unfit, match="s-1-0000 has 3 reports, of which 1 came"):
        world.return_under(digest(X), reported=3)
    assert world.trial.state == "running"
    for epoch in (2, 3):
        world.report(epoch, digest(X))
    world.return_under(digest(X), reported=3)
    assert world.trials["s-1-0000"].state == "completed"


def test_an_attempt_that_returns_after_fewer_reports_than_were_accepted_counts(world):
    world.report(2, digest(X))
    world.return_under(digest(X), reported=1)
    assert world.trials["s-1-0000"].state == "completed"


def test_attributes_of_an_objective_with_other_draws_are_refused(world):
    fence = min(world.open)
    with pytest.raises(Unfit):
        world.write("s-1-0000", fence=fence, writing=NOTE, draws_digest=digest(OTHER_X))
    world.write("s-1-0000", fence=fence, writing=NOTE, draws_digest=digest(X))


def test_a_message_of_attributes_that_is_lost_is_noticed_with_the_next_one(world):
    fence = min(world.open)
    said = {"fence": fence, "writing": NOTE, "draws_digest": digest(X)}
    world.write("s-1-0000", number=1, **said)
    with pytest.raises(Unfit, match="message 2 of what s-1-0000 wrote did not come"):
        world.write("s-1-0000", number=3, **said)
    world.write("s-1-0000", number=2, **said)
    world.write("s-1-0000", number=3, **said)


def test_what_an_objective_returns_is_refused_where_what_it_wrote_before_was_lost(world):
    said = {"fence": min(world.open), "writing": NOTE, "draws_digest": digest(X)}
    world.write("s-1-0000", number=1, **said)
    with pytest.raises(Unfit, match="message 2 of what s-1-0000 wrote did not come"):
        world.return_under(digest(X), writings=2)
    world.write("s-1-0000", number=2, **said)
    world.return_under(digest(X), writings=2)
    assert world.trials["s-1-0000"].state == "completed"


def test_what_a_user_writes_has_no_number_and_none_of_its_own_is_looked_at(world):
    world.write("s-1-0000", number=7, writing=NOTE)
    world.write("s-1-0000", fence=min(world.open), number=1, writing=NOTE, draws_digest=digest(X))


def test_a_session_that_takes_over_an_attempt_counts_what_it_writes_anew(world):
    said = {"fence": min(world.open), "writing": NOTE, "draws_digest": digest(X)}
    for number in (1, 2, 3, 1, 2):
        world.write("s-1-0000", number=number, **said)
    world.return_under(digest(X), writings=2)
    assert world.trials["s-1-0000"].state == "completed"


def test_the_next_attempt_counts_what_it_writes_anew(world):
    said = {"writing": NOTE, "draws_digest": digest(X)}
    world.write("s-1-0000", fence=min(world.open), number=1, **said)
    world.write("s-1-0000", fence=min(world.open), number=2, **said)
    world.lose()
    with pytest.raises(Unfit, match="message 1 "):
        world.write("s-1-0000", fence=min(world.open), number=2, **said)
    world.write("s-1-0000", fence=min(world.open), number=1, **said)


def test_events_of_0_2_say_no_digest_and_replay_as_they_happened(world):
    world.write("s-1-0000", fence=min(world.open), writing=Writing(suggestions=(OTHER_X,)))
    assert world.trial.params == (("x", 0.7),)
    world.report(2, None)


def test_a_user_overwrites_a_parameter_of_a_trial_that_no_attempt_has_begun(world):
    name = world.add("running", writing=Writing(suggestions=(X,)))
    world.write(name, writing=Writing(suggestions=(OTHER_X,)))
    world.write(name, state="complete", values=(1.0,))
    assert world.trials[name].params == (("x", 0.7),)


def test_a_trial_that_is_enqueued_with_parameters_has_them_in_its_first_task(world):
    name = world.add("waiting", writing=Writing(suggestions=(X, Y)))
    world.return_under(digest(X))
    assert (world.at_work.segment.trial, world.at_work.suggestions) == (name, (X, Y))


def test_draws_are_kept_no_longer_than_their_trial_is_at_work(world):
    world.return_under(digest(X))
    assert world.trial.suggestions == ()
    assert world.trial.params == (("x", 0.5),)


def test_where_the_scheduler_samples_nothing_is_compared():
    world = Objective()
    world.submit(local(sampler="random", tools=None))
    world.join("cpu.a.0")
    world.draw(X, drawn="")
    world.draw(OTHER_X, drawn="")
    assert world.trial.suggestions == ()


def test_the_order_of_draws_does_not_count_and_everything_else_does():
    assert digest(X, Y) == digest(Y, X)
    others = [replace(X, name="z"), replace(X, distribution="[]"), replace(X, internal=0.25)]
    assert len({digest(each, Y) for each in (X, *others)}) == 4
    assert digest_of([("n", "{}", 1)]) == digest_of([("n", "{}", 1.0)])

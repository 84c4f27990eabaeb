"""A loss that is no number is written down all the same, and hides nothing."""

from __future__ import annotations

import contextlib
import math
from pathlib import Path

import torch

from edgeflock.common.models.kit import registry as models
from edgeflock.common.scores import summarise
from edgeflock.methods.kit.batches import LocalData
from edgeflock.server.core.decisions import Scored
from edgeflock.server.core.testing import evaluated
from edgeflock.server.journal.costs import write_values
from edgeflock.server.journal.journal import Journal
from edgeflock.server.journal.reader import Reader
from edgeflock.server.learning.evaluator import Evaluator
from support.scored import MARKING

WAIT_S = 20


def test_a_model_whose_loss_is_no_number_has_its_score_in_the_journal(tmp_path: Path) -> None:
    net = models.build("mlp", input_shape=(1, 28, 28), classes=10, seed=1)
    evaluator = Evaluator(net, MARKING)
    flat = evaluator._flat
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.fill_(3e38)
    evaluator.load(flat.params.clone(), flat.buffers.clone())
    score = evaluator.score(LocalData(torch.ones(4, 1, 28, 28), torch.zeros(4, dtype=torch.long)))
    assert score.loss == math.inf
    with contextlib.closing(Journal(tmp_path / "journal.sqlite")) as journal:
        found = summarise([score])
        scored = Scored(1, (("global", found),))
        journal.decide([scored], [evaluated(1, "global", found)]).result(WAIT_S)
    with contextlib.closing(Reader(tmp_path)) as reader:
        assert reader.evaluations()[0, 1]["global"].loss == math.inf
        assert reader.events()[0].number("loss") == math.inf


def test_a_metric_that_is_no_number_keeps_no_round_from_its_commit(tmp_path: Path) -> None:
    with contextlib.closing(Journal(tmp_path / "journal.sqlite")) as journal:
        values = {"loss": 1.5, "ratio": math.nan}
        journal._writer.submit(lambda connection: write_values(connection, 0, 1, values)).result(WAIT_S)
    with contextlib.closing(Reader(tmp_path)) as reader:
        assert reader.round_costs() == {(0, 1): {"loss": 1.5}}

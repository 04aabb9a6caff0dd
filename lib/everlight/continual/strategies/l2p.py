"""Learning to prompt (L2P; Wang et al. 2022, CVPR, arXiv 2112.08654).

    minimize over prompts, keys and head   CE over the task's own classes − λ Σ cos(q, k_m)

The network stays as it was pretrained. `models.prompt_pool` has the prompts and the second term,
which the loss of the setup contains (`models.with_prompts`). Memory holds nothing, and nothing is
done between tasks.

The registry has the values of the official configuration of split CIFAR-100
(`configs/cifar100_l2p.py`): N = 4 of M = 10 prompts of L = 10 tokens, λ = 1. The paper has N = 5,
L = 5 and λ = 0.5. That code multiplies its learning rate of 0.03 by the batch size over 256.

Equal to the official code (google-research/l2p, `train_continual.py`) at the steps of a task,
where each image has prompts of its own (`models/prompts.py` says how that differs); differs in:

- Gradients are clipped only if the setup's optimizer does so. In the official code the gradient of
  all parameters, of frozen ones too, is shortened to a length of at most 1.
- The head has the setup's initial values. In the official code it begins at 0.
- Seen classes are predicted. In the official code unseen ones are too, whose logits are 0.
- Images are those of the setup. In the official code their values go from 0 to 1.
- In the official code the settings of CORe50 freeze nothing.
"""

from collections.abc import Mapping

from jaxtyping import PRNGKeyArray, PyTree

from everlight.base import Learner, Setup, Strategy
from everlight.checks import checked
from everlight.continual.methods.method import (
    SINGLE_LABEL_SCORES,
    Method,
    Publication,
    StrategyArguments,
)
from everlight.continual.strategies.naive import naive_on_task_classes
from everlight.errors import ArgumentError
from everlight.models.prompts import prompt_pool, with_prompts
from everlight.models.vit import VisionTransformer


@checked
def l2p(setup: Setup) -> Strategy:
    """Return learning to prompt (L2P): prompts of a frozen network, trained on a task's classes.

    Tasks must have disjoint classes.

    Args:
      setup: setup of `models.with_prompts` with a `models.prompt_pool`.

    Raises:
      ValueError: at `init`, the setup trains no prompts.
    """

    def init(key: PRNGKeyArray, learner: Learner) -> tuple[()]:
        refuse_without_prompts(learner.params, "L2P")
        return ()

    return naive_on_task_classes(setup)._replace(init=init)


def refuse_without_prompts(params: PyTree, name: str) -> None:
    """Refuse parameters without prompts.

    Args:
      params: parameters of a setup.
      name: name of the strategy that needs them.

    Raises:
      ValueError: there are none.
    """
    if "prompts" not in params:
        raise ArgumentError(
            f"the parameters are {', '.join(params)}; {name} needs prompts; make the setup by "
            "models.with_prompts"
        )


def with_pool(
    setup: Setup, net: VisionTransformer, layers: Mapping[str, PyTree], arguments: StrategyArguments
) -> Setup:
    """Return the setup with the code's values: four of ten prompts of ten tokens, λ = 1."""
    return with_prompts(setup, net, layers, prompt_pool(net.width))


METHODS = (
    Method(
        "L2P",
        l2p,
        Publication("Wang et al.", 2022, "CVPR"),
        "learning to prompt (L2P): prompts of a frozen network, trained on own classes",
        adapt=with_pool,
        requirements=("pretrained transformer", *SINGLE_LABEL_SCORES, "disjoint classes"),
        authors={
            "batch size": 128,
            "epochs per task": 5,
            "optimizer": "adam",
            # 0.03 times the batch size over 256.
            "learning rate": 0.015,
        },
    ),
)

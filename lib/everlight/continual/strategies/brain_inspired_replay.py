"""Brain-inspired replay (BI-R; van de Ven, Siegelmann and Tolias 2020, Nature Communications).

The network makes the inputs that it replays. Its components, by the paper's names:

1. Replay through feedback: a decoder from the last hidden layer makes classifier and generator one
   network, a variational autoencoder whose encoder is the classifier (`models.feedback_decoder`).
2. Conditional replay: latent variables have a Gaussian of learned mean and variance per class.
3. Gating by internal context: hidden units of the decoder are closed at random, others for every
   class or task. The classifier has no gates.
4. Distillation: the previous network's scores at temperature T are the targets, and their softmax
   P(y) is the class of a replayed input for the prior and for the gates of classes.

In task t, with d inputs and x' made for a random earlier class, and an earlier task's gates if
there are gates of tasks,

    L = 1/t (L_task(x, y) − ELBO(x; y) / d) + (1 − 1/t) (L_distil(x') − ELBO(x'; P) / d)
    L_distil(x') = −Σ_y P(y | x') log softmax(s(x') / T)_y,   P = softmax(s_{t−1}(x') / T)
    gates of x in the decoder: row y or t of a 0-1 table; of x': Σ_y P(y) row y, or its task's row

The softmaxes run over the objective's classes: with heads those of the class that was generated.
Internal replay, the paper's fifth component, makes features of frozen convolutions instead of
inputs. Networks of dense layers have none, and the 2022 code of split MNIST replays pixels; with
convolutions everlight's decoder too makes the network's inputs.

The default likelihood is Gaussian, for inputs of any normalization; "bernoulli", the authors'
binary cross-entropy, is for pixels from 0 to 1, and gives NaN for others.

Equal to the code of van de Ven et al. 2022 (GMvandeVen/continual-learning, `cond_vae.py`,
`train_task_based.py` with `--brain-inspired`) at the weights of the losses, the losses and the
gradient of all parameters for given draws, and the settings of split MNIST: 10% of the units closed
for every class, or with domains for every task, and none with the task given. Differs in:

- With heads each generated input has the head of its class; in that code as many inputs, rounded
  up, are made for each earlier task, and the tasks' losses are averaged.
- With heads and gates of classes, new data open the gates of their class; in that code those of the
  label within its head.
- Batch statistics see the replayed inputs before the new ones, in that code after them.
- Initial weights of the decoder are LeCun-normal, in that code uniform.
- The decoder's optimizer is Adam whatever the network's is, and is not reset between tasks. In that
  code one Adam trains both.

The loss has exponentials of the encoder's log variances. With few inputs d, large steps of SGD make
them diverge; Adam, the authors' optimizer, did not in the tests' runs.
"""

from collections.abc import Sequence
from functools import partial
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from everlight.base import Batch, Learner, Outputs, Setup, StepInfo, Strategy, Task
from everlight.checks import PositiveFloat, PositiveInt, ProperFraction, checked
from everlight.continual.methods.method import SINGLE_LABEL_SCORES, Method, Publication
from everlight.continual.strategies.naive import naive
from everlight.continual.strategies.parts.added_parameters import AddedParameters
from everlight.continual.strategies.parts.frozen import feature_width
from everlight.continual.strategies.parts.passes import (
    batch_outputs,
    evaluation_outputs,
    weighted_mean,
)
from everlight.continual.strategies.parts.teacher import Teacher, no_teacher
from everlight.errors import Argument, ArgumentError
from everlight.models.feedback_decoder import (
    DecoderGates,
    FeedbackDecoder,
    feedback_losses,
    generate_of_classes,
    new_feedback,
)
from everlight.models.vae import Likelihood
from everlight.precision import matrix_product

Gating = Literal["class", "task"]
"""Owner of a row of gates: a class, or a task."""


class FeedbackMemory(NamedTuple):
    """Memory of brain-inspired replay: decoder and network, new and previous, and the gates."""

    decoder: AddedParameters
    previous: PyTree
    """Parameters of the decoder at the end of the task before."""
    teacher: Teacher
    """Network at the end of the task before, and the classes known to it."""
    gates: tuple[Float[Array, "r _"], ...]
    """Gates of each hidden layer of the decoder, 0 or 1, a row per class or task."""


class ReplayedInputs(NamedTuple):
    """Inputs that the previous network made, with the targets of a step."""

    inputs: Float[Array, "n *shape"]
    label: Int[Array, "n"]
    """Class for which each input was made."""
    probabilities: Float[Array, "n c"]
    """Softmax of the previous network's scores at the temperature."""
    gates: DecoderGates


class DecodedBatch(NamedTuple):
    """Values of a batch that the decoder's loss reads beside the features."""

    inputs: Float[Array, "n *shape"]
    probabilities: Float[Array, "n c"]
    gates: DecoderGates
    key: PRNGKeyArray
    """Random key of the latent variables."""


@checked
def brain_inspired_replay(
    setup: Setup,
    hidden: Sequence[PositiveInt] = (400, 400),
    latent: PositiveInt = 100,
    generator_learning_rate: PositiveFloat = 1e-3,
    gated_share: ProperFraction = 0.1,
    gating: Gating = "class",
    temperature: PositiveFloat = 2.0,
    likelihood: Likelihood = "gaussian",
    replay_batch_size: PositiveInt | None = None,
    tasks: PositiveInt | None = None,
) -> Strategy:
    """Return brain-inspired replay (BI-R), whose memory is `FeedbackMemory`.

    Args:
      setup: network, objective, optimizer and data access; the decoder reads the features.
      hidden: units of the hidden layers of the decoder, from the latent variables on; in the paper
        those of the network in reverse.
      latent: number of latent variables.
      generator_learning_rate: learning rate of the decoder's optimizer, Adam.
      gated_share: probability, less than 1, that a class or task closes a hidden unit of the
        decoder; 0 has no gates.
      gating: "class" for gates per class, or "task" for gates per task, where tasks share classes.
      temperature: temperature T of both networks' scores.
      likelihood: "gaussian", or "bernoulli" for inputs from 0 to 1, such as pixels.
      replay_batch_size: generated inputs per step; None is the size of the incoming batch.
      tasks: the number of tasks in the sequence, which gates of tasks need.

    Raises:
      ValueError: there are gates of tasks and no number of tasks; or the objective has no
        `label_losses`.
    """
    if gating == "task" and tasks is None:
        raise ArgumentError(
            Argument("gating", gating), " needs the number of tasks", remedy=("give tasks",)
        )
    if setup.objective.label_losses is None:
        raise ArgumentError(
            "BI-R distils class probabilities, and the objective has no label_losses",
            remedy=("give one that has, such as softmax_objective()",),
        )

    optimizer = optax.adam(generator_learning_rate)

    def decoder_of(classes: int) -> FeedbackDecoder:
        return FeedbackDecoder(setup.input_shape.size, classes, tuple(hidden), latent, likelihood)

    def init(key: PRNGKeyArray, learner: Learner) -> FeedbackMemory:
        key_params, key_gates = jax.random.split(key)
        classes, (width, _) = learner.seen.shape[0], feature_width(setup, learner)
        params = new_feedback(decoder_of(classes), width, key_params)
        rows = classes if gating == "class" else tasks
        gates = random_gates(rows, hidden, gated_share, key_gates)
        decoder = AddedParameters(params, optimizer.init(params))
        return FeedbackMemory(decoder, params, no_teacher(learner), gates)

    def grads(
        memory: FeedbackMemory, learner: Learner, batch: Batch, task: Task, key: PRNGKeyArray
    ) -> tuple[PyTree, StepInfo]:
        classes, size = learner.seen.shape[0], batch.inputs.shape[0]
        decoder, share = decoder_of(classes), 1 / (task.id + 1)
        keys = jax.random.split(key, 5)
        count, shape = replay_batch_size or size, batch.inputs.shape[1:]
        replayed = replay(decoder, memory, task, (count, *shape), keys[0])
        label = jnp.maximum(batch.labels[:, 0], 0)
        row = label if gating == "class" else jnp.full(size, task.id)
        current = DecodedBatch(
            batch.inputs, jax.nn.one_hot(label, classes), rows_of(memory.gates, row), keys[1]
        )
        again = DecodedBatch(replayed.inputs, replayed.probabilities, replayed.gates, keys[2])

        def loss(params: PyTree, feedback: PyTree) -> tuple[Float[Array, ""], tuple]:
            generative = partial(decoded_losses, decoder, feedback)
            outputs, stats = setup.apply(
                params, learner.batch_stats, replayed.inputs, True, keys[3]
            )
            # Nothing is replayed in the first task.
            first = task.id == 0
            stats = jax.tree.map(partial(jnp.where, first), learner.batch_stats, stats)
            old = distillation_losses(setup, outputs, replayed, learner.seen, temperature)
            old = jnp.mean(old + generative(outputs, again))
            after = learner._replace(batch_stats=stats)
            outputs, stats = batch_outputs(setup, params, after, batch, keys[4])
            losses = setup.objective.loss(outputs, batch.labels, learner.seen)
            task_loss = weighted_mean(losses, batch.weight)
            new = task_loss + weighted_mean(generative(outputs, current), batch.weight)
            return share * new + (1 - share) * old, (task_loss, stats)

        differentiate = jax.grad(loss, argnums=(0, 1), has_aux=True)
        (gradient, for_decoder), (task_loss, stats) = differentiate(
            learner.params, memory.decoder.params
        )
        return gradient, StepInfo(gradient, stats, task_loss, for_decoder)

    def replay(
        decoder: FeedbackDecoder,
        memory: FeedbackMemory,
        task: Task,
        shape: tuple[int, ...],
        key: PRNGKeyArray,
    ) -> ReplayedInputs:
        key_label, key_task, key_noise = jax.random.split(key, 3)
        # The first task has no earlier classes; its generated inputs have weight 0.
        known = memory.teacher.known | ~jnp.any(memory.teacher.known)
        label = random_classes(known, shape[0], key_label)
        earlier = jnp.maximum(task.id.astype(jnp.int32), 1)
        row = label if gating == "class" else jax.random.randint(key_task, label.shape, 0, earlier)
        noise = jax.random.normal(key_noise, (shape[0], latent))
        gates = rows_of(memory.gates, row)
        flat = generate_of_classes(decoder, memory.previous, label, gates, noise)
        inputs = flat.reshape(shape)
        outputs = evaluation_outputs(setup, memory.teacher, inputs)
        _, probabilities = setup.objective.label_losses(
            softened_outputs(outputs, temperature), label[:, None], known
        )
        if gating == "class":
            gates = tuple(matrix_product(probabilities, table) for table in memory.gates)
        return ReplayedInputs(inputs, label, probabilities, gates)

    def after_step(
        memory: FeedbackMemory, learner: Learner, info: StepInfo, key: PRNGKeyArray
    ) -> tuple[FeedbackMemory, Learner]:
        params, state = memory.decoder
        update, state = optimizer.update(info.aux, state, params)
        decoder = AddedParameters(optax.apply_updates(params, update), state)
        return memory._replace(decoder=decoder), learner

    def end_task(
        memory: FeedbackMemory, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[FeedbackMemory, Learner]:
        teacher = Teacher(learner.params, learner.batch_stats, learner.seen)
        return memory._replace(previous=memory.decoder.params, teacher=teacher), learner

    return naive(setup)._replace(
        init=init,
        grads=grads,
        after_step=after_step,
        end_task=end_task,
        tasks=tasks if gating == "task" else None,
        parameter_copies=1,
    )


def random_gates(
    rows: int, hidden: Sequence[int], gated_share: float, key: PRNGKeyArray
) -> tuple[Float[Array, "r _"], ...]:
    """Return gates of each hidden layer, 0 with the probability of the share, else 1."""
    return tuple(
        jax.random.bernoulli(key, 1 - gated_share, (rows, units)).astype(jnp.float32)
        for key, units in zip(jax.random.split(key, len(hidden)), hidden, strict=True)
    )


def rows_of(gates: Sequence[Float[Array, "r _"]], row: Int[Array, "n"]) -> DecoderGates:
    """Return the rows of each layer's table."""
    return tuple(table[row] for table in gates)


def random_classes(known: Bool[Array, "c"], count: int, key: PRNGKeyArray) -> Int[Array, "n"]:
    """Return random classes among the known ones, all equally probable."""
    return jax.random.categorical(key, jnp.where(known, 0.0, -jnp.inf), shape=(count,))


def softened_outputs(outputs: Outputs, temperature: float) -> Outputs:
    """Return outputs whose logits are divided by the temperature."""
    return outputs._replace(logits=outputs.logits / temperature)


def distillation_losses(
    setup: Setup,
    outputs: Outputs,
    replayed: ReplayedInputs,
    seen: Bool[Array, "c"],
    temperature: float,
) -> Float[Array, "n"]:
    """Return the cross-entropy with the previous network's probabilities at a temperature.

    Args:
      setup: setup whose objective says which classes count.
      outputs: the network's outputs for the replayed inputs.
      replayed: the inputs with their targets.
      seen: classes seen so far.
      temperature: temperature of both networks' scores.
    """
    losses, _ = setup.objective.label_losses(
        softened_outputs(outputs, temperature), replayed.label[:, None], seen
    )
    return jnp.sum(replayed.probabilities * losses, axis=1)


def decoded_losses(
    decoder: FeedbackDecoder, params: PyTree, outputs: Outputs, batch: DecodedBatch
) -> Float[Array, "n"]:
    """Return the decoder's −ELBO / d of each input, from the network's outputs for the batch."""
    flat = batch.inputs.reshape(batch.inputs.shape[0], -1)
    noise = jax.random.normal(batch.key, (flat.shape[0], decoder.latent))
    return feedback_losses(
        decoder, params, outputs.features, flat, batch.probabilities, batch.gates, noise
    )


METHODS = (
    Method(
        "BI-R",
        brain_inspired_replay,
        Publication("van de Ven et al.", 2020, "Nature Communications", ("old net",)),
        "brain-inspired replay (BI-R): inputs of the network's own decoder, distilled",
        requirements=SINGLE_LABEL_SCORES,
        authors={
            "hidden": (400, 400),
            "latent": 100,
            "generator_learning_rate": 0.001,
            "gated_share": 0.1,
            "gating": "class",
            "temperature": 2.0,
            "likelihood": "bernoulli",
            "batch size": 128,
            "optimizer": "adam",
            "learning rate": 0.001,
        },
        planned_total="tasks",
    ),
)

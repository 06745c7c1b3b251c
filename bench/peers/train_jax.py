"""JAX: one jitted step with donated state, which gathers its batch from a resident dataset.

Runs as one process, or as two processes of jax.distributed with gloo's CPU collectives. Then the state is replicated,
shard_map splits the batch and one pmean averages the gradients.
"""

from __future__ import annotations

from common import Job, Stopwatch, parse_job
from mnist import load_mnist

LEARNING_RATE = 0.001


def initial_parameters(np, job: Job) -> list:
    """Kernels and biases, layer by layer, initialized as in Keras: Glorot uniform and zeros."""
    random = np.random.default_rng(0)
    if job.model == "keras_mnist":
        shapes = [(3, 3, 1, 32), (21632, 128), (128, 10)]
    else:
        shapes = [(3, 3, 1, 32), (3, 3, 32, 64), (1600, 64), (64, 10)]
    parameters = []
    for shape in shapes:
        field = int(np.prod(shape[:-2]))
        limit = (6.0 / (field * (shape[-2] + shape[-1]))) ** 0.5
        parameters.append(random.uniform(-limit, limit, shape).astype(np.float32))
        parameters.append(np.zeros(shape[-1], np.float32))
    return parameters


def train(job: Job) -> None:
    watch = Stopwatch(job)
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax import lax
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    jax.config.update("jax_platforms", "cpu")
    if job.workers > 1:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(job.addresses[0], num_processes=job.workers, process_id=job.worker)
    mesh = Mesh(np.array(jax.devices()), ("workers",))
    everywhere = NamedSharding(mesh, PartitionSpec())
    number = jnp.bfloat16 if job.half else jnp.float32

    def convolution(x, kernel, bias):
        y = lax.conv_general_dilated(
            x, kernel.astype(number), (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        return jax.nn.relu(y + bias.astype(number))

    def pooling(x):  # nearly twice as fast as lax.reduce_window and its gradient
        n, h, w, c = x.shape
        x = x[:, : h // 2 * 2, : w // 2 * 2, :].reshape(n, h // 2, 2, w // 2, 2, c)
        return x.max((2, 4))

    def dense(x, kernel, bias):
        return x @ kernel.astype(number) + bias.astype(number)

    def logits_of(parameters, x):
        layers = list(zip(parameters[::2], parameters[1::2]))
        x = convolution(x.astype(number), *layers[0])
        if job.model != "keras_mnist":
            x = pooling(convolution(pooling(x), *layers[1]))
        x = x.reshape(x.shape[0], -1)
        return dense(jax.nn.relu(dense(x, *layers[-2])), *layers[-1]).astype(jnp.float32)

    def loss_of(parameters, x, y):
        logits = logits_of(parameters, x)
        chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], 1)
        return -chosen.mean(), (logits.argmax(1) == y).mean()

    def update(parameters, slots, gradients, step):
        if job.model == "keras_mnist":
            return [p - LEARNING_RATE * g for p, g in zip(parameters, gradients)], slots
        first = [0.9 * m + 0.1 * g for m, g in zip(slots[0], gradients)]
        second = [0.999 * v + 0.001 * g * g for v, g in zip(slots[1], gradients)]
        rate = LEARNING_RATE * jnp.sqrt(1 - 0.999**step) / (1 - 0.9**step)
        moved = [p - rate * m / (jnp.sqrt(v) + 1e-7) for p, m, v in zip(parameters, first, second)]
        return moved, (first, second)

    def one_step(state, pixels, answers, order):
        """Trains on this worker's shard of the batch. `order` is the epoch's order of examples."""
        parameters, slots, totals, step, position = state
        start = position + (lax.axis_index("workers") * job.local_batch if job.workers > 1 else 0)
        local = lax.dynamic_slice(order, (start,), (job.local_batch,))
        x = pixels[local].astype(jnp.float32)[..., None] / 255.0
        (loss, accuracy), gradients = jax.value_and_grad(loss_of, has_aux=True)(parameters, x, answers[local])
        if job.workers > 1:
            gradients, loss, accuracy = lax.pmean((gradients, loss, accuracy), "workers")
        step += 1
        parameters, slots = update(parameters, slots, gradients, step.astype(jnp.float32))
        return parameters, slots, totals + jnp.stack([loss, accuracy]), step, position + job.batch

    if job.workers > 1:
        one = PartitionSpec()
        one_step = jax.shard_map(one_step, mesh=mesh, in_specs=(one, one, one, one), out_specs=one, check_vma=False)
    compiled = jax.jit(one_step, donate_argnums=0)

    def put(value):
        """Replicates a host value on every worker's device."""
        value = np.asarray(value)
        return jax.make_array_from_callback(value.shape, everywhere, lambda index: value[index])

    images, labels = load_mnist(job.data_dir)
    pixels, answers = put(images), put(labels.astype(np.int32))
    parameters = [put(p) for p in initial_parameters(np, job)]
    slots = ()
    if job.model != "keras_mnist":
        slots = (
            [put(np.zeros(p.shape, np.float32)) for p in parameters],
            [put(np.zeros(p.shape, np.float32)) for p in parameters],
        )
    random = np.random.default_rng(1)  # the same order on every worker
    order = put(random.permutation(len(labels)).astype(np.int32))
    state = (parameters, slots, put(np.zeros(2, np.float32)), put(np.int32(0)), put(np.int32(0)))
    done = 0

    def run(steps: int) -> float:
        """Trains, synchronizes and returns the mean loss."""
        nonlocal state, order, done
        state = (*state[:2], put(np.zeros(2, np.float32)), *state[3:])
        for _ in range(steps):
            if (done + 1) * job.batch > len(labels):
                order, done = put(random.permutation(len(labels)).astype(np.int32)), 0
                state = (*state[:4], put(np.int32(0)))
            state = compiled(state, pixels, answers, order)
            done += 1
        return float(np.asarray(state[2])[0]) / max(1, steps)

    run(1)
    watch.first_step()
    run(job.warmup)
    last_loss = 0.0
    for _ in range(job.steps // job.steps_per_epoch):
        watch.begin()
        last_loss = run(job.steps_per_epoch)
        watch.end()
    watch.report("jax", jax.__version__, last_loss)


if __name__ == "__main__":
    train(parse_job(__doc__))

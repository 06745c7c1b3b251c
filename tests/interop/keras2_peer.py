"""The Keras 2 side of random_models_test.py. Runs in a Python with tensorflow and tf_keras.

    keras2_peer.py build FOLDER SEED...     writes SEED.h5, the model, and SEED.npz: inputs, predictions, weights
    keras2_peer.py predict FOLDER SEED...   reads SEED.h5 and writes the same SEED.npz
"""

import argparse
import os
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import numpy as np  # noqa: E402
import tf_keras  # noqa: E402
from random_keras import build, inputs_of, weights_in_order  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=("build", "predict"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("seeds", type=int, nargs="+")
    arguments = parser.parse_args()
    for seed in arguments.seeds:
        tf_keras.backend.clear_session()
        file = arguments.folder / f"{seed}.h5"
        if arguments.task == "build":
            model = build(tf_keras, seed)
            model.save(file)
        else:
            # Keras 2 writes the class as "Custom>AdamW", which Keras 3 cannot read.
            model = tf_keras.models.load_model(file, custom_objects={"AdamW": tf_keras.optimizers.AdamW})
        inputs = inputs_of(model.input_shape, seed)
        arrays = {f"weight_{i}": weight.numpy() for i, weight in enumerate(weights_in_order(model))}
        np.savez(arguments.folder / f"{seed}.npz", inputs=inputs, predictions=np.array(model(inputs, training=False)),
                 **arrays)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Trains the perceptron of this example and writes digits.safetensors beside this file.

    pip install numpy scikit-learn safetensors && python3 train.py

Layers: 64 -> 128 -> 64 -> 10 with ReLU between; weights [out, in] and biases in bf16. The last 597 images are held out.
Also stores the images (u8, 0..16) and labels, so that the example needs no other file.
Data: "Optical Recognition of Handwritten Digits", E. Alpaydin and C. Kaynak, UCI Machine Learning Repository,
https://doi.org/10.24432/C50P49, licence CC BY 4.0; the 1,797-image set that scikit-learn ships.
"""
import pathlib
import numpy as np
from safetensors import TensorSpec, serialize_file
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier

TRAIN = 1200


def bf16(values):
    """Rounds f32 to nearest even bf16; the bits as u16."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


digits = load_digits()
images, labels = digits.data.astype(np.float32), digits.target
model = MLPClassifier((128, 64), alpha=1e-2, max_iter=400, random_state=7).fit(images[:TRAIN] / 16, labels[:TRAIN])
print(f"held out: {model.score(images[TRAIN:] / 16, labels[TRAIN:]):.4f}  all: {model.score(images / 16, labels):.4f}")

tensors = {}


def add(name, dtype, array):
    tensors[name] = TensorSpec(dtype=dtype, shape=list(array.shape), data_ptr=array.ctypes.data, data_len=array.nbytes)
    keep.append(array)


keep = []
for n, (weight, bias) in enumerate(zip(model.coefs_, model.intercepts_), 1):
    add(f"w{n}", "bfloat16", bf16(weight.T))
    add(f"b{n}", "bfloat16", bf16(bias))
add("images", "uint8", images.astype(np.uint8))
add("labels", "uint8", labels.astype(np.uint8))
metadata = {"train": str(TRAIN), "licence": "CC BY 4.0, https://doi.org/10.24432/C50P49"}
serialize_file(tensors, str(pathlib.Path(__file__).with_name("digits.safetensors")), metadata)

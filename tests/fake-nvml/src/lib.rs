//! A `libnvidia-ml.so.1` that answers from a world file.

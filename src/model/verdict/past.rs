//! What was seen of each process before the latest snapshot.

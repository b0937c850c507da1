//! Layers, losses, initialisers, models and checkpoints

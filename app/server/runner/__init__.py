"""The loop around the engine: messages in, effects out, and the samplers and policies it asks."""

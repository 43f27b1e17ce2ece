"""System parameters (knobs): how a trainer applies them, and the measurement of their effects."""

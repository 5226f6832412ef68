"""The update of one variable in several variants; `samplers.registry` chooses among them."""

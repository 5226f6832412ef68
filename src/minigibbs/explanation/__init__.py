"""What each sampler would cost on a graph, and which one to use."""

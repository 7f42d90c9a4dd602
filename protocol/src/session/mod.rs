//! One connection: endpoint, channels and congestion avoidance put together.

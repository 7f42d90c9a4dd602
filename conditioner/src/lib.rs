//! A path that spoils datagrams on purpose: as a value for simulations, and as a UDP proxy between real programs.

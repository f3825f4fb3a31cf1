//! How fast deliveries are, beside a plain loop.

//! The flow table, the TCP states and the reference model that the data plane must agree with.

//! The server's side: processes by id, sockets of the machine, a page of metrics.

//! The charts of the overview in display order: title, kind, and series as [name in /overview, label, colour class].

/// Groups of charts.
export const OVERVIEW_CHARTS = [
  [
    "Users",
    [
      { title: "Users online", kind: "count", series: [["users_online", "Users online", "k0"]] },
      {
        title: "Sessions by transport",
        kind: "count",
        layers: true,
        series: [
          ["sessions_tcp", "TCP", "k1"],
          ["sessions_tls", "TLS", "k0"],
          ["sessions_websocket", "WebSocket", "k3"],
          ["sessions_bosh", "BOSH", "k4"],
          ["sessions_detached", "detached", "k2"],
        ],
      },
      {
        title: "Logins",
        kind: "rate",
        series: [["logins", "succeeded", "k0"], ["login_failures", "failed", "kbad"]],
      },
    ],
  ],
  [
    "Stanzas",
    [
      { title: "Messages", kind: "rate", series: [["messages_in", "in", "k0"], ["messages_out", "out", "k2"]] },
      { title: "Presence", kind: "rate", series: [["presence_in", "in", "k0"], ["presence_out", "out", "k2"]] },
      { title: "Requests (IQ)", kind: "rate", series: [["iq_in", "in", "k0"], ["iq_out", "out", "k2"]] },
      {
        title: "Message delivery inside the node",
        kind: "seconds",
        series: [["delivery_p99", "p99", "k2"], ["delivery_p50", "p50", "k0"]],
        none: "No messages yet",
      },
      {
        title: "Outgoing queues",
        kind: "bytes",
        layers: true,
        series: [["queue_messages", "messages", "k0"], ["queue_presence", "presence", "k3"], ["queue_control", "control", "k1"]],
      },
      { title: "Dropped", kind: "rate", series: [["queue_full", "queue full", "kbad"], ["drops", "stanzas", "k1"]] },
    ],
  ],
  [
    "Machine and database",
    [
      { title: "Processor", kind: "percent", series: [["cpu", "Processor", "k0"]] },
      { title: "Memory", kind: "bytes", series: [["memory", "Memory", "k0"]] },
      { title: "Traffic", per: "per second", kind: "bytes", series: [["bytes_in", "in", "k0"], ["bytes_out", "out", "k2"]] },
      { title: "Event-loop lag", kind: "seconds", series: [["lag", "Event-loop lag", "k0"]] },
      { title: "Database operations", kind: "rate", series: [["database_ops", "Database operations", "k0"]] },
      { title: "Database latency, p99", kind: "seconds", series: [["database_p99", "Database latency, p99", "k0"]], none: "No operations yet" },
    ],
  ],
];

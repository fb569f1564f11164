//! What only the program knows of itself: its readiness, its figures, its log.

/// The process around the engine.
pub trait Machine: Send + Sync {
    /// Whether it takes clients.
    fn ready(&self) -> bool;
    /// All metrics in the OpenMetrics text format 1.0, with `# EOF`.
    ///
    /// # Errors
    /// When a value cannot be written, which is a fault of ours.
    fn metrics(&self) -> Result<String, std::fmt::Error>;
    /// The figures of `throng status --json`.
    fn figures(&self) -> serde_json::Value;
    /// Where clients find BOSH and WebSocket: link relations of XEP-0156 and addresses. `host` is what the client asked
    /// for, with a port if it has one; `secure`: over TLS.
    fn alternatives(&self, host: Option<&str>, secure: bool) -> Vec<(&'static str, String)> {
        let _ = (host, secure);
        Vec::new()
    }
}

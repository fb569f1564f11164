//! `throng drain`: empties a running node and stops it, so that its clients move to other nodes.
//!
//! It runs the command `drain` through the admin socket and waits for the end of the node. Interrupting it does not interrupt the
//! drain; SIGTERM to the node ends all remaining streams at once.

use std::io::IsTerminal;
use std::time::Duration;

use anyhow::Result;

use crate::admin::{self, AdminRequest};
use crate::cli::DrainArgs;
use crate::config::NodeConfig;
use crate::{output, runtime};

/// Time between two requests for the number of connections.
const INTERVAL: Duration = Duration::from_millis(500);

/// Drains the node.
pub(crate) fn command(args: DrainArgs) -> Result<()> {
    let config = NodeConfig::load(args.file.config.as_deref())?;
    runtime::start()?.block_on(run(&config, args))
}

async fn run(config: &NodeConfig, args: DrainArgs) -> Result<()> {
    let mut stream = admin::connect_running(config).await?;
    let mut values = vec![("rate".to_owned(), args.rate.to_string())];
    values.extend(args.see_other_host.map(|host| ("other-host".to_owned(), host)));
    let request =
        AdminRequest::Command { domain: config.domain().to_owned(), name: "drain".to_owned(), values };
    let answer = admin::send_request(&mut stream, &request).await?;
    answer.lines.iter().for_each(|line| output::line(line));
    let is_terminal = std::io::stderr().is_terminal();
    // The node closes the socket when it has stopped.
    while let Ok(answer) = admin::send_request(&mut stream, &AdminRequest::Status).await {
        let connections = answer.status.as_ref().and_then(|status| status["connections"].as_u64());
        if let Some(connections) = connections.filter(|_| is_terminal) {
            eprint!("\r\x1b[K{connections} connections left");
        }
        tokio::time::sleep(INTERVAL).await;
    }
    if is_terminal {
        eprint!("\r\x1b[K");
    }
    output::line("the node has stopped");
    Ok(())
}

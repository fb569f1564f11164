//! Tests of the API of one node about all nodes of a cluster, over the memory bus.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::Router;
use cluster::conformance::InboxRecorder;
use cluster::{Cluster, NodeId};
use features::registry::ALL;
use serde_json::{Value, json};
use testkit::{NodeClient, TestNodes};
use throng_api::auth::{Scopes, TokenScope};
use throng_api::log::{LogBuffer, LogLevel, LogLine};
use throng_api::{Api, ServerProcess};
use throng_commands::Caller;
use throng_commands::audit::record_audit_entry;

use crate::common::{ApiReply, ApiRequest, FakeServerProcess, api_request};

/// A process with a log of its own.
#[derive(Default)]
struct Process(Arc<LogBuffer>);

impl ServerProcess for Process {
    fn ready(&self) -> bool {
        true
    }

    fn metrics(&self) -> Result<String, std::fmt::Error> {
        FakeServerProcess.metrics()
    }

    fn status_json(&self) -> Value {
        json!({ "version": "0.1.0", "up_seconds": 60, "sessions": 2 })
    }

    fn node_stats(&self) -> throng_api::NodeStats {
        FakeServerProcess.node_stats()
    }

    fn log(&self) -> Arc<LogBuffer> {
        self.0.clone()
    }

    fn modules(&self) -> &'static [&'static feature_api::feature::Feature] {
        &[]
    }

    fn default_domain(&self) -> String {
        FakeServerProcess.default_domain()
    }

    fn started(&self) -> u64 {
        FakeServerProcess.started()
    }

    fn reload(&self) -> base::BoxFuture<'static, Result<throng_api::Reloaded, String>> {
        FakeServerProcess.reload()
    }
}

struct ApiNodes {
    nodes: TestNodes,
    apis: Vec<Arc<Api>>,
    routers: Vec<Router>,
    logs: Vec<Arc<LogBuffer>>,
    secret: String,
}

impl ApiNodes {
    async fn new(count: usize) -> ApiNodes {
        let nodes = TestNodes::new(count, ALL);
        let logs: Vec<Arc<LogBuffer>> = (0..count).map(|_| Arc::default()).collect();
        let apis: Vec<Arc<Api>> = logs
            .iter()
            .enumerate()
            .map(|(index, log)| Api::new(nodes.node(index).node.clone(), Arc::new(Process(log.clone()))))
            .collect();
        let routers = apis.iter().map(|api| throng_api::router(api.clone())).collect();
        let scopes = Scopes::from_scopes([TokenScope::Admin]);
        let secret = apis[0].tokens.add("admin", scopes, 0, None).await.unwrap().0;
        ApiNodes { nodes, apis, routers, logs, secret }
    }

    /// Sends a request to one node while all go on. Connections without a task never answer, so time passes.
    async fn send(&self, node: usize, request: ApiRequest<'_>) -> ApiReply {
        let request = request.bearer(&self.secret);
        let mut answer = std::pin::pin!(request.send_to_router(&self.routers[node]));
        let mut turns = 0;
        loop {
            tokio::select! {
                biased;
                answer = &mut answer => return answer,
                () = tokio::task::yield_now() => {
                    self.nodes.step();
                    turns += 1;
                    if turns % 50 == 0 {
                        self.nodes.advance(1);
                    }
                }
            }
        }
    }

    async fn get(&self, node: usize, path: &str) -> Value {
        let answer = self.send(node, api_request(&format!("GET /api/v1{path}"))).await;
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        answer.json()
    }

    fn connect(&self, places: &[(usize, &str, &str)]) -> Vec<NodeClient> {
        let users: BTreeSet<&str> = places.iter().map(|(_, user, _)| *user).collect();
        for user in users {
            self.nodes.node(0).create_user(user);
        }
        let clients =
            places.iter().map(|(node, user, resource)| self.nodes.node(*node).connect(user, resource));
        let clients = clients.collect();
        self.nodes.settle();
        clients
    }

    /// A member that answers nothing.
    fn add_silent_node(&self) -> Arc<dyn Cluster> {
        let silent: Arc<dyn Cluster> = self.nodes.bus.join(NodeId::new("silent").unwrap());
        InboxRecorder::attach(&silent);
        self.nodes.settle();
        silent
    }
}

fn pairs(list: &Value, one: &str, other: &str) -> BTreeSet<(String, String)> {
    let text = |item: &Value, key: &str| item[key].as_str().unwrap_or_default().to_owned();
    list.as_array().unwrap().iter().map(|item| (text(item, one), text(item, other))).collect()
}

fn expected(pairs: &[(&str, &str)]) -> BTreeSet<(String, String)> {
    pairs.iter().map(|(one, other)| ((*one).to_owned(), (*other).to_owned())).collect()
}

const PLACES: [(usize, &str, &str); 4] =
    [(0, "juliet", "balcony"), (1, "juliet", "chamber"), (2, "romeo", "orchard"), (1, "nurse", "hall")];

#[tokio::test]
async fn sessions_of_all_nodes_are_listed_shown_and_ended() {
    let test = ApiNodes::new(3).await;
    let clients = test.connect(&PLACES);
    let all = test.get(0, "/sessions").await;
    assert_eq!((&all["total"], &all["missing"], &all["next"]), (&json!(4), &json!([]), &Value::Null));
    assert_eq!(
        pairs(&all["items"], "jid", "node"),
        expected(&[
            ("juliet@example.com/balcony", "node-0"),
            ("juliet@example.com/chamber", "node-1"),
            ("romeo@example.com/orchard", "node-2"),
            ("nurse@example.com/hall", "node-1"),
        ])
    );
    let mut listed = Vec::new();
    let mut path = "/sessions?limit=1".to_owned();
    loop {
        let page = test.get(1, &path).await;
        listed.extend(page["items"].as_array().unwrap().iter().map(|one| one["jid"].to_string()));
        let Some(next) = page["next"].as_str() else { break };
        path = format!("/sessions?limit=1&after={next}");
    }
    assert_eq!((listed.len(), listed.iter().collect::<BTreeSet<_>>().len()), (4, 4));
    let of_node = test.get(2, "/sessions?node=node-1").await;
    assert_eq!((of_node["items"].as_array().map(Vec::len), &of_node["total"]), (Some(2), &json!(2)));
    for path in ["/sessions?account=juliet@example.com", "/accounts/juliet@example.com/sessions"] {
        let of_account = test.get(2, path).await;
        assert_eq!(
            pairs(&of_account["items"], "jid", "node"),
            expected(&[("juliet@example.com/balcony", "node-0"), ("juliet@example.com/chamber", "node-1")])
        );
    }
    let one = test.get(0, "/sessions/romeo@example.com%2Forchard").await;
    assert_eq!((&one["jid"], &one["node"]), (&json!("romeo@example.com/orchard"), &json!("node-2")));
    for (line, status) in [
        ("GET /api/v1/sessions/romeo@example.com%2Felsewhere", 404),
        ("GET /api/v1/sessions/romeo@example.com", 400),
        ("GET /api/v1/sessions?node=node-7", 404),
        ("GET /api/v1/sessions?account=example.com", 400),
        ("DELETE /api/v1/sessions/romeo@example.com%2Forchard", 204),
        ("DELETE /api/v1/sessions/romeo@example.com%2Forchard", 404),
        ("GET /api/v1/sessions/romeo@example.com%2Forchard", 404),
    ] {
        assert_eq!(test.send(0, api_request(line)).await.status, status, "{line}");
    }
    let ended: Vec<bool> = clients.iter().map(|client| client.session.is_ended()).collect();
    assert_eq!(ended, [false, false, true, false]);
}

#[tokio::test]
async fn a_node_without_an_answer_is_named_and_nothing_is_claimed_about_its_sessions() {
    let test = ApiNodes::new(2).await;
    let _clients = test.connect(&[(0, "juliet", "balcony"), (1, "romeo", "orchard")]);
    let _silent = test.add_silent_node();
    let missing = json!([{ "node": "silent", "reason": "no-answer" }]);
    for path in ["/sessions", "/nodes", "/log", "/audit", "/overview", "/accounts/romeo@example.com/sessions"]
    {
        assert_eq!(test.get(0, path).await["missing"], missing, "{path}");
    }
    assert_eq!(test.get(0, "/sessions").await["total"], 2);
    assert_eq!(test.get(0, "/sessions?node=node-1").await["missing"], json!([]), "it was not asked");
    let missing_session = "/api/v1/sessions/mercutio@example.com%2Fx";
    for method in ["GET", "DELETE"] {
        let answer = test.send(0, api_request(&format!("{method} {missing_session}"))).await;
        assert_eq!(answer.problem(), (503, "resource-constraint".to_owned()), "{method}: {answer:?}");
        assert!(answer.text.contains("without silent, which did not answer"), "{answer:?}");
    }
    let found = test.send(0, api_request("DELETE /api/v1/sessions/romeo@example.com%2Forchard")).await;
    assert_eq!(found.status, 204);
    let command = |name: &str| api_request(&format!("POST /api/v1/commands/{name}")).json(json!({}));
    for name in ["get-online-users-num", "get-online-users-list", "get-sessions-list", "get-nodes-list"] {
        let output = test.send(0, command(name)).await.json();
        assert_eq!(output["missing-nodes"], json!(["silent"]), "{name}: {output}");
        assert_eq!(output["note"], "without silent, which did not answer", "{name}");
    }
}

#[tokio::test]
async fn nodes_are_described_and_summed() {
    let test = ApiNodes::new(3).await;
    let _clients = test.connect(&PLACES);
    let answer = test.get(1, "/nodes").await;
    let names: Vec<&str> =
        answer["nodes"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["node-1", "node-0", "node-2"], "the responding one first");
    let of = |index: usize, key: &str| answer["nodes"][index][key].clone();
    assert_eq!((of(0, "this"), of(1, "this")), (json!(true), json!(false)));
    assert_eq!((of(0, "sessions"), of(1, "sessions"), of(2, "sessions")), (json!(2), json!(1), json!(1)));
    assert_eq!(
        (of(2, "memory_bytes"), of(2, "ready"), of(2, "started")),
        (json!(5_000_000), json!(true), json!(1_700_000_000))
    );
    let totals = &answer["totals"];
    assert_eq!((&totals["sessions"], &totals["memory_bytes"]), (&json!(4), &json!(15_000_000)));
    assert_eq!(answer["missing"], json!([]));
    let output =
        test.send(2, api_request("POST /api/v1/commands/get-nodes-list").json(json!({}))).await.json();
    assert_eq!(output["nodes"].as_array().map(Vec::len), Some(3), "{output}");
    assert_eq!((&output["nodes"][0]["name"], &output["nodes"][0]["sessions"]), (&json!("node-2"), &json!(1)));
}

#[tokio::test]
async fn commands_list_the_users_and_sessions_of_all_nodes() {
    let test = ApiNodes::new(3).await;
    let _clients = test.connect(&PLACES);
    let run = async |name: &str, input: Value| {
        let answer = test.send(2, api_request(&format!("POST /api/v1/commands/{name}")).json(input)).await;
        assert_eq!(answer.status, 200, "{name}: {answer:?}");
        answer.json()
    };
    let users = run("get-online-users-list", json!({})).await;
    let listed: BTreeSet<&str> =
        users["users"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert_eq!(listed, ["juliet@example.com", "nurse@example.com", "romeo@example.com"].into());
    assert_eq!(users["users"].as_array().map(Vec::len), Some(3), "a user on two nodes is listed once");
    assert_eq!(run("get-active-users", json!({})).await["users"].as_array().map(Vec::len), Some(3));
    assert_eq!(run("get-idle-users", json!({})).await["users"], json!([]));
    assert_eq!(run("get-online-users-num", json!({})).await["number"], 3);
    let stats = run("user-stats", json!({ "user": "juliet@example.com" })).await;
    assert_eq!(
        (&stats["resources"], &stats["nodes"]),
        (&json!(["balcony", "chamber"]), &json!(["node-0", "node-1"]))
    );
    let sessions = run("get-sessions-list", json!({})).await;
    assert_eq!(pairs(&sessions["sessions"], "jid", "node").len(), 4);
    let of_node = run("get-sessions-list", json!({ "node": "node-1", "max-items": 1 })).await;
    assert_eq!(of_node["sessions"].as_array().map(Vec::len), Some(1));
    assert!(of_node["next"].is_string());
    let of_user = run("get-sessions-list", json!({ "user": "romeo@example.com" })).await;
    assert_eq!(
        pairs(&of_user["sessions"], "jid", "node"),
        expected(&[("romeo@example.com/orchard", "node-2")])
    );
    for (input, status) in [
        (json!({ "node": "node-9" }), 404),
        (json!({ "after": "nobody" }), 422),
        (json!({ "user": "juliet@elsewhere.example" }), 422),
    ] {
        let request = api_request("POST /api/v1/commands/get-sessions-list").json(input.clone());
        assert_eq!(test.send(2, request).await.status, status, "{input}");
    }
    let ended = run("end-user-session", json!({ "user": "juliet@example.com" })).await;
    assert_eq!(ended["note"], "2 sessions ended");
}

#[tokio::test]
async fn logs_and_audits_of_all_nodes_are_merged_by_time() {
    let test = ApiNodes::new(2).await;
    let log = |index: usize, time: u64, message: &str| {
        let line = LogLine {
            number: 0,
            time,
            level: LogLevel::Info,
            target: "throng".to_owned(),
            message: message.to_owned(),
            fields: vec![("user".to_owned(), "juliet".to_owned())],
        };
        test.logs[index].push(line);
    };
    for (index, time, message) in [(0, 1, "a"), (1, 2, "b"), (0, 3, "c"), (1, 4, "d")] {
        log(index, time, message);
    }
    let messages = |answer: &Value| {
        let lines = answer["lines"].as_array().unwrap().iter();
        lines.map(|line| line["message"].as_str().unwrap().to_owned()).collect::<String>()
    };
    let first = test.get(0, "/log").await;
    assert_eq!(messages(&first), "abcd");
    assert_eq!(
        (&first["lines"][1]["node"], &first["lines"][1]["number"], &first["lines"][1]["fields"]),
        (&json!("node-1"), &json!(1), &json!({ "user": "juliet" }))
    );
    assert_eq!(messages(&test.get(1, "/log?limit=3").await), "bcd", "the newest ones");
    assert_eq!(messages(&test.get(0, "/log?node=node-1").await), "bd");
    let next = first["next"].as_str().unwrap();
    log(1, 5, "e");
    let newer = test.get(0, &format!("/log?after={next}")).await;
    assert_eq!((messages(&newer).as_str(), &newer["next"]), ("e", &json!("node-0:2,node-1:3")));
    assert_eq!(messages(&test.get(0, "/log?level=error").await), "");
    for index in [1, 0] {
        record_audit_entry(&test.nodes.node(index).node, &Caller::operator(), "restart", "", "done");
        test.nodes.clock.advance(1000);
    }
    let audit = test.get(0, "/audit").await;
    let nodes: Vec<&str> =
        audit["items"].as_array().unwrap().iter().map(|entry| entry["node"].as_str().unwrap()).collect();
    assert_eq!(nodes, ["node-1", "node-0"]);
    assert_eq!(test.get(0, "/audit?node=node-1").await["items"].as_array().map(Vec::len), Some(1));
}

#[tokio::test]
async fn the_overview_is_that_of_all_nodes_or_of_one() {
    let test = ApiNodes::new(2).await;
    let _clients =
        test.connect(&[(0, "juliet", "balcony"), (1, "juliet", "chamber"), (1, "romeo", "orchard")]);
    for _ in 0..4 {
        test.nodes.clock.advance(2_000);
        test.apis.iter().for_each(|api| api.sample());
    }
    let last =
        |answer: &Value, name: &str| answer["series"][name].as_array().unwrap().last().cloned().unwrap();
    let all = test.get(0, "/overview").await;
    assert_eq!((last(&all, "sessions"), last(&all, "memory")), (json!(3), json!(10_000_000)));
    assert_eq!((&all["nodes"], &all["missing"]), (&json!(["node-0", "node-1"]), &json!([])));
    assert_eq!((&all["current"]["nodes"], &all["current"]["sessions"]), (&json!(2), &json!(4)));
    let since = all["now"].as_u64().unwrap();
    let newer = test.get(0, &format!("/overview?since={since}")).await;
    assert_eq!((&newer["series"]["sessions"], &newer["now"]), (&json!([]), &json!(since)));
    let one = test.get(0, "/overview?node=node-1").await;
    assert_eq!((last(&one, "sessions"), &one["nodes"]), (json!(2), &json!(["node-1"])));
    assert_eq!(one["current"]["ready"], true);
    let own = test.get(0, "/overview?node=node-0").await;
    assert_eq!((last(&own, "sessions"), &own["nodes"]), (json!(1), &json!(["node-0"])));
    let answer = test.send(0, api_request("GET /api/v1/overview?node=node-5")).await;
    assert_eq!(answer.status, 404);
}

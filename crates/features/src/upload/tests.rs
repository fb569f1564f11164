//! Tests from the examples of XEP-0363, and of what an attacker may try.

use base::clock::Clock as _;
use base64::Engine as _;
use feature_api::EnabledFeature;
use feature_api::http_route::HttpRouteBody;
use http::{Request, StatusCode};
use testkit::{NodeClient, TestNode, assert_same};
use throng_core::NodeLimits;

use super::*;

const REQUEST: &str = "<request xmlns='urn:xmpp:http:upload:0' filename='très cool.jpg' size='23456' \
                       content-type='image/jpeg'/>";

struct Stage {
    engine: TestNode,
    romeo: NodeClient,
}

fn stage(options: &[(&'static str, i64)]) -> Stage {
    let mut enabled: Vec<EnabledFeature> = [&crate::disco::FEATURE, &FEATURE]
        .into_iter()
        .map(|feature| EnabledFeature { feature, options: FeatureOptions::defaults(feature.options) })
        .collect();
    for (key, value) in options {
        enabled[1].options.set(FEATURE.options, key, OptionValue::Int(*value)).unwrap();
    }
    let engine = TestNode::start(&enabled, NodeLimits::default());
    engine.create_user("romeo");
    let romeo = engine.connect("romeo", "garden");
    Stage { engine, romeo }
}

fn request(client: &NodeClient, payload: &str) -> String {
    client.request(&format!("<iq type='get' id='step_03' to='upload.example.com'>{payload}</iq>")).concat()
}

/// The URLs for PUT and GET.
fn slot_of(reply: &str) -> (String, String) {
    let url = |element: &str| {
        let rest = reply.split_once(&format!("<{element} url='")).unwrap_or_else(|| panic!("{reply}")).1;
        rest.split_once('\'').unwrap().0.replace("&amp;", "&")
    };
    (url("put"), url("get"))
}

impl Stage {
    /// A slot for a file of this size and type.
    fn slot(&self, name: &str, size: usize, content_type: &str) -> (String, String) {
        let payload = format!(
            "<request xmlns='urn:xmpp:http:upload:0' filename='{name}' size='{size}' content-type='{content_type}'/>"
        );
        slot_of(&request(&self.romeo, &payload))
    }

    fn send(
        &self,
        method: &str,
        url: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> http::Response<Vec<u8>> {
        let mut request = Request::builder().method(method).uri(url);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body =
            if body.is_empty() { HttpRouteBody::Empty } else { HttpRouteBody::Full(body.to_vec().into()) };
        self.engine.http_request(request.body(body).unwrap())
    }

    fn put(&self, url: &str, content_type: &str, body: &[u8]) -> StatusCode {
        self.send("PUT", url, &[("content-type", content_type)], body).status()
    }

    fn get(&self, url: &str) -> http::Response<Vec<u8>> {
        self.send("GET", url, &[], b"")
    }

    /// Uploads a file and returns its URL.
    fn upload(&self, name: &str, content_type: &str, body: &[u8]) -> String {
        let (put, get) = self.slot(name, body.len(), content_type);
        assert_eq!(self.put(&put, content_type, body), StatusCode::CREATED);
        get
    }
}

fn header<'a>(response: &'a http::Response<Vec<u8>>, name: &str) -> &'a str {
    response.headers().get(name).map_or("", |value| value.to_str().unwrap())
}

#[test]
fn section_4_the_service_announces_itself_and_the_maximum_file_size() {
    let Stage { romeo, .. } = stage(&[("max_file_bytes", 5_242_880)]);
    assert_same(
        &romeo.request(
            "<iq type='get' id='step_02' to='upload.example.com'><query xmlns='http://jabber.org/protocol/disco#info'/></iq>",
        ),
        &["<iq from='upload.example.com' id='step_02' to='romeo@example.com/garden' type='result'>\
           <query xmlns='http://jabber.org/protocol/disco#info'>\
           <identity category='store' type='file' name='HTTP File Upload'/>\
           <feature var='http://jabber.org/protocol/disco#info'/>\
           <feature var='http://jabber.org/protocol/disco#items'/>\
           <feature var='urn:xmpp:http:upload:0'/>\
           <feature var='urn:xmpp:http:upload:purpose:0#ephemeral'/>\
           <feature var='urn:xmpp:http:upload:purpose:0#message'/>\
           <feature var='urn:xmpp:http:upload:purpose:0#profile'/>\
           <x type='result' xmlns='jabber:x:data'><field var='FORM_TYPE' type='hidden'>\
           <value>urn:xmpp:http:upload:0</value></field><field var='max-file-size'><value>5242880</value></field></x>\
           </query></iq>"],
    );
}

#[test]
fn section_5_urls_of_an_international_domain_are_ascii() {
    let enabled = [EnabledFeature { feature: &FEATURE, options: FeatureOptions::defaults(FEATURE.options) }];
    let engine = TestNode::start(&enabled, NodeLimits::default());
    engine.reload(&["example.com", "münchen.example"], &enabled);
    engine.create_user("romeo@münchen.example");
    let romeo = engine.connect("romeo@münchen.example", "garden");
    let payload = REQUEST.replace("23456", "1");
    let reply =
        romeo.request(&format!("<iq type='get' id='1' to='upload.münchen.example'>{payload}</iq>")).concat();
    let (put, get) = slot_of(&reply);
    assert!(get.is_ascii() && get.contains("/upload/m%C3%BCnchen.example/"), "{get}");
    let body = HttpRouteBody::Full("x".into());
    let request = Request::put(&put).header("content-type", "image/jpeg").body(body).unwrap();
    assert_eq!(engine.http_request(request).status(), StatusCode::CREATED);
}

#[test]
fn section_5_a_slot_has_two_urls_and_the_file_is_served_as_it_was_sent() {
    let stage = stage(&[]);
    let (put, get) = slot_of(&request(&stage.romeo, REQUEST));
    assert!(get.starts_with("https://upload.test/upload/example.com/"), "{get}");
    assert!(get.ends_with("/tr%C3%A8s%20cool.jpg"), "{get}");
    assert_eq!(put.split_once('?').unwrap().0, get);
    assert_eq!(stage.get(&get).status(), StatusCode::NOT_FOUND, "not yet");
    let content = vec![7; 23_456];
    assert_eq!(stage.put(&put, "image/jpeg", &content), StatusCode::CREATED);
    let served = stage.get(&get);
    assert_eq!((served.status(), served.body() == &content), (StatusCode::OK, true));
    assert_eq!(header(&served, "content-type"), "image/jpeg");
    assert_eq!(header(&served, "content-disposition"), "inline; filename*=UTF-8''tr%C3%A8s%20cool.jpg");
}

#[test]
fn section_6_each_purpose_has_its_retention() {
    const DAY: u32 = 24 * 60 * 60;
    let stage = stage(&[("retention_days", 2)]);
    let slot = |purpose: &str| {
        let payload = REQUEST.replace("/>", &format!(">{purpose}</request>")).replace("23456", "1");
        request(&stage.romeo, &payload)
    };
    let of = |name: &str, more: &str| format!("<{name} xmlns='urn:xmpp:http:upload:purpose:0' {more}/>");
    let in_an_hour =
        stanza::payload::datetime::format_utc(stage.engine.clock.unix_millis() + 3_600_000, false);
    let later =
        stanza::payload::datetime::format_utc(stage.engine.clock.unix_millis() + 3_600_000_000, false);
    let urls = [
        of("message", ""),
        of("profile", ""),
        of("ephemeral", &format!("expire-before='{in_an_hour}'")),
        of("ephemeral", &format!("expire-before='{later}'")),
    ]
    .map(|purpose| {
        let (put, get) = slot_of(&slot(&purpose));
        assert_eq!(stage.put(&put, "image/jpeg", b"x"), StatusCode::CREATED);
        get
    });
    let available = || urls.each_ref().map(|url| stage.get(url).status() == StatusCode::OK);
    assert_eq!(available(), [true; 4]);
    stage.engine.clock.advance(3_600_000);
    assert_eq!(available(), [true, true, false, true], "not made available after that time");
    stage.engine.clock.advance(u64::from(2 * DAY) * 1000);
    assert_eq!(available(), [false, true, false, false], "no longer than the retention");
    for (purpose, want) in [
        (of("permanent", ""), "<feature-not-implemented"),
        (of("ephemeral", ""), "<bad-request"),
        (of("ephemeral", "expire-before='soon'"), "<bad-request"),
        (of("ephemeral", "expire-before='2001-01-01T00:00:00Z'"), "<not-acceptable"),
    ] {
        assert!(slot(&purpose).contains(want), "{purpose}");
    }
}

#[test]
fn section_7_a_file_that_is_too_large_is_refused_with_the_maximum() {
    let stage = stage(&[("max_file_bytes", 20_000)]);
    assert_same(
        &[request(&stage.romeo, REQUEST)],
        &["<iq from='upload.example.com' id='step_03' to='romeo@example.com/garden' type='error'>\
           <request xmlns='urn:xmpp:http:upload:0' filename='très cool.jpg' size='23456' content-type='image/jpeg'/>\
           <error type='modify'><not-acceptable xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/>\
           <text xmlns='urn:ietf:params:xml:ns:xmpp-stanzas' xml:lang='en'>File too large. The maximum file size is \
           20000 bytes</text><file-too-large xmlns='urn:xmpp:http:upload:0'><max-file-size>20000</max-file-size>\
           </file-too-large></error></iq>"],
    );
}

#[test]
fn section_7_a_full_quota_is_refused_with_the_time_at_which_there_is_space() {
    let stage = stage(&[("bytes_per_user", 40_960), ("retention_days", 1)]);
    let stamp = |seconds: u64| {
        let time = stage.engine.clock.unix_millis() / 1000 + seconds;
        format!("<retry xmlns='urn:xmpp:http:upload:0' stamp='{}'/>", format_time(time))
    };
    let sized = |blocks: u32| request(&stage.romeo, &REQUEST.replace("23456", &(4096 * blocks).to_string()));
    let first = stage.upload("a", "text/plain", &[b'x'; 6 * 4096]);
    let refused = sized(5);
    assert!(refused.contains("<error type='wait'><resource-constraint"), "{refused}");
    stage.engine.clock.advance(400_000);
    let refused = sized(5);
    assert!(refused.contains(&stamp(86_000)), "{} in {refused}", stamp(86_000));
    assert!(sized(4).contains("<slot"), "it fits");
    assert!(sized(1).contains("<resource-constraint"), "the slot occupies its size");
    stage.engine.clock.advance(301_000);
    assert!(sized(4).contains("<slot"), "the unused slot has expired");
    stage.engine.clock.advance(86_400_000);
    assert_eq!(stage.get(&first).status(), StatusCode::NOT_FOUND);
    assert!(sized(10).contains("<slot"), "an expired file occupies nothing");
}

#[test]
fn a_file_of_one_byte_occupies_a_block() {
    let stage = stage(&[("bytes_per_user", 8192), ("bytes", 12_288)]);
    let small = REQUEST.replace("23456", "1");
    stage.upload("a", "text/plain", b"1");
    stage.upload("b", "text/plain", b"2");
    let refused = request(&stage.romeo, &small);
    assert!(refused.contains("<resource-constraint"), "{refused}");
    stage.engine.create_user("juliet");
    let juliet = stage.engine.connect("juliet", "balcony");
    stage.engine.advance(3600);
    let answers = [(); 2].map(|()| request(&juliet, &small).contains("<slot"));
    assert_eq!(answers, [true, false], "the job counts blocks too");
}

fn format_time(seconds: u64) -> String {
    stanza::payload::datetime::format_utc(seconds * 1000, false)
}

#[test]
fn section_7_too_many_slots_are_refused_until_the_first_has_expired() {
    let stage = stage(&[("slots_per_user", 2), ("slot_seconds", 300)]);
    let retry = format!("stamp='{}'", format_time(stage.engine.clock.unix_millis() / 1000 + 300));
    stage.upload("a", "text/plain", b"1");
    assert!(request(&stage.romeo, REQUEST).contains("<slot"));
    let refused = request(&stage.romeo, REQUEST);
    assert!(refused.contains("<resource-constraint") && refused.contains(&retry), "{refused}");
    stage.engine.create_user("juliet");
    let juliet = stage.engine.connect("juliet", "balcony");
    assert!(request(&juliet, REQUEST).contains("<slot"), "another user");
    stage.engine.clock.advance(300_000);
    assert!(request(&stage.romeo, REQUEST).contains("<slot"));
}

#[test]
fn files_of_all_users_are_limited_and_counted_again_by_the_job() {
    let stage = stage(&[("bytes", 40_960), ("retention_days", 1)]);
    stage.engine.advance(1);
    stage.upload("a", "text/plain", &[b'x'; 8 * 4096]);
    let sized = |blocks: u32| request(&stage.romeo, &REQUEST.replace("23456", &(4096 * blocks).to_string()));
    assert!(sized(3).contains("<resource-constraint") && sized(3).contains("<retry"), "8 + 3");
    assert!(sized(2).contains("<slot"), "8 + 2");
    stage.engine.clock.advance(86_400_000);
    assert!(sized(10).contains("<resource-constraint"), "still on the disk");
    stage.engine.advance(3600);
    assert!(sized(10).contains("<slot"), "the job has removed it");
}

#[test]
fn unused_slots_of_one_user_occupy_the_domain_until_their_deadline_only() {
    let stage = stage(&[("bytes", 40_960)]);
    stage.engine.advance(1);
    let of_all = REQUEST.replace("23456", "40960");
    assert!(request(&stage.romeo, &of_all).contains("<slot"));
    stage.engine.create_user("juliet");
    let juliet = stage.engine.connect("juliet", "balcony");
    let retry = format!("stamp='{}'", format_time(stage.engine.clock.unix_millis() / 1000 + 300));
    let refused = request(&juliet, REQUEST);
    assert!(refused.contains("<resource-constraint") && refused.contains(&retry), "{refused}");
    stage.engine.clock.advance(300_000);
    assert!(request(&juliet, &of_all).contains("<slot"), "before the job runs");
}

#[test]
fn a_slot_that_is_not_issued_occupies_nothing() {
    use super::signed_url::{FileClass, FileId, SlotTerms};
    let mut options = UploadOptions::new(&FeatureOptions::defaults(FEATURE.options), "example.com");
    (options.slots_per_user, options.bytes) = (1, 4096);
    let signer = UrlSigner::new(&ServerSecret::new(b"secret"), "example.com");
    let owner = signer.owner(jid::Jid::parse("romeo@example.com").unwrap().as_ref());
    let quota = UploadQuota::default();
    let terms = SlotTerms { deadline: 300, size: 1 };
    let reserve = |id| quota.reserve(&options, (owner, id, FileClass::Message), terms, &[], 0);
    let (first, second) = (FileId::random(), FileId::random());
    assert_eq!(reserve(first), Ok(()));
    assert!(reserve(second).is_err());
    quota.cancel(owner, second);
    assert!(reserve(second).is_err(), "another slot");
    quota.cancel(owner, first);
    assert_eq!(reserve(second), Ok(()));
}

#[test]
fn section_7_only_users_of_the_domain_receive_slots() {
    let stage = stage(&[]);
    stage.engine.create_user("romeo@example.net");
    let other = stage.engine.connect("romeo@example.net", "garden");
    let guest = stage.engine.connect_anonymous("guest", "x");
    for client in [&other, &guest] {
        let refused = request(client, REQUEST);
        assert!(refused.contains("<error type='auth'><forbidden"), "{refused}");
    }
}

#[test]
fn malformed_requests_are_refused() {
    let stage = stage(&[]);
    for (from, to) in [
        (" filename='très cool.jpg'", ""),
        ("'très cool.jpg'", "' '"),
        (" size='23456'", ""),
        ("'23456'", "'0'"),
        ("'23456'", "'-1'"),
        ("'23456'", "'many'"),
        ("'23456'", "'99999999999999999999999'"),
        ("image/jpeg", "image"),
        ("image/jpeg", "image/jpeg&#10;X-Injected: 1"),
    ] {
        let refused = request(&stage.romeo, &REQUEST.replace(from, to));
        assert!(refused.contains("<bad-request"), "{to}: {refused}");
    }
}

#[test]
fn section_8_a_file_must_have_the_size_and_type_of_its_slot() {
    let stage = stage(&[]);
    let (put, get) = stage.slot("a.txt", 5, "text/plain");
    let typed = [("content-type", "text/plain")];
    for (status, body) in
        [(StatusCode::PAYLOAD_TOO_LARGE, &b"123456"[..]), (StatusCode::BAD_REQUEST, b"1234")]
    {
        assert_eq!(stage.send("PUT", &put, &typed, body).status(), status);
    }
    assert_eq!(stage.put(&put, "text/html", b"12345"), StatusCode::UNSUPPORTED_MEDIA_TYPE);
    assert_eq!(stage.send("PUT", &put, &[], b"12345").status(), StatusCode::UNSUPPORTED_MEDIA_TYPE);
    let coded = [("content-type", "text/plain"), ("content-encoding", "gzip")];
    assert_eq!(stage.send("PUT", &put, &coded, b"12345").status(), StatusCode::UNSUPPORTED_MEDIA_TYPE);
    assert_eq!(stage.get(&get).status(), StatusCode::NOT_FOUND);
    assert_eq!(stage.put(&put, "Text/Plain", b"12345"), StatusCode::CREATED, "the slot is still valid");
}

#[test]
fn a_body_of_unknown_length_is_refused() {
    let stage = stage(&[]);
    let (put, _) = stage.slot("a.txt", 5, "text/plain");
    let body = HttpRouteBody::Stream { chunks: Box::pin(Endless), length: None };
    let request = Request::put(&put).header("content-type", "text/plain").body(body).unwrap();
    assert_eq!(stage.engine.http_request(request).status(), StatusCode::LENGTH_REQUIRED);
}

/// Never ends.
struct Endless;

impl futures_core::Stream for Endless {
    type Item = Result<bytes::Bytes, feature_api::http_route::HttpBodyError>;

    fn poll_next(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        std::task::Poll::Ready(Some(Ok(bytes::Bytes::from_static(b"x"))))
    }
}

#[test]
fn a_body_that_is_longer_than_announced_is_not_stored() {
    let stage = stage(&[]);
    let (put, get) = stage.slot("a.txt", 5, "text/plain");
    let body = HttpRouteBody::Stream { chunks: Box::pin(Endless), length: Some(5) };
    let request = Request::put(&put).header("content-type", "text/plain").body(body).unwrap();
    assert_eq!(stage.engine.http_request(request).status(), StatusCode::BAD_REQUEST);
    assert_eq!(stage.get(&get).status(), StatusCode::NOT_FOUND);
}

#[test]
fn a_slot_is_used_once_and_expires() {
    let stage = stage(&[]);
    let (put, get) = stage.slot("a.txt", 1, "text/plain");
    assert_eq!(stage.put(&put, "text/plain", b"1"), StatusCode::CREATED);
    assert_eq!(stage.put(&put, "text/plain", b"2"), StatusCode::CONFLICT);
    assert_eq!(stage.get(&get).body(), b"1");
    let (put, get) = stage.slot("a.txt", 1, "text/plain");
    stage.engine.clock.advance(300_000);
    assert_eq!(stage.put(&put, "text/plain", b"1"), StatusCode::GONE);
    assert_eq!(stage.get(&get).status(), StatusCode::NOT_FOUND);
}

#[test]
fn the_address_of_a_file_is_not_that_of_a_slot() {
    let stage = stage(&[]);
    let (put, get) = stage.slot("a.txt", 1, "text/plain");
    let (other, _) = stage.slot("b.txt", 1, "text/plain");
    let query = |url: &str| url.split_once('?').unwrap().1.to_owned();
    for url in [get.clone(), format!("{get}?slot="), format!("{get}?{}", query(&other))] {
        assert_eq!(stage.put(&url, "text/plain", b"1"), StatusCode::FORBIDDEN, "{url}");
    }
    assert_eq!(stage.put(&put, "text/plain", b"1"), StatusCode::CREATED);
}

#[test]
fn invented_addresses_are_not_files() {
    let stage = stage(&[]);
    let base = "https://upload.test/upload/example.com";
    let invented = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode([0; 90]);
    for path in ["x", "..%2f..%2fetc%2fpasswd", "../a", "a/..", &format!("{invented}/a.txt"), "%00/%00"] {
        for method in ["GET", "HEAD", "PUT"] {
            let status = stage.send(method, &format!("{base}/{path}"), &[], b"").status();
            assert_eq!(status, StatusCode::NOT_FOUND, "{method} {path}");
        }
    }
}

#[test]
fn rfc_9110_ranges_tags_and_head() {
    let stage = stage(&[]);
    let url = stage.upload("a.txt", "text/plain", b"0123456789");
    let whole = stage.get(&url);
    let tag = header(&whole, "etag").to_owned();
    assert_eq!((header(&whole, "accept-ranges"), tag.len()), ("bytes", 34));
    let part = stage.send("GET", &url, &[("range", "bytes=2-4")], b"");
    assert_eq!((part.status(), &part.body()[..]), (StatusCode::PARTIAL_CONTENT, &b"234"[..]));
    assert_eq!(header(&part, "content-range"), "bytes 2-4/10");
    let beyond = stage.send("GET", &url, &[("range", "bytes=10-")], b"");
    assert_eq!(beyond.status(), StatusCode::RANGE_NOT_SATISFIABLE);
    assert_eq!(header(&beyond, "content-range"), "bytes */10");
    let same = stage.send("GET", &url, &[("if-none-match", &tag)], b"");
    assert_eq!(
        (same.status(), same.body().len(), header(&same, "etag")),
        (StatusCode::NOT_MODIFIED, 0, &*tag)
    );
    let head = stage.send("HEAD", &url, &[("range", "bytes=2-4")], b"");
    assert_eq!(
        (head.status(), header(&head, "content-length")),
        (StatusCode::OK, "10"),
        "only GET has ranges"
    );
    assert_eq!((header(&head, "content-range"), head.body().len()), ("", 0));
    for (condition, status) in [
        (&*tag, StatusCode::OK),
        ("*", StatusCode::OK),
        (&*format!("W/{tag}"), StatusCode::PRECONDITION_FAILED),
        ("\"other\"", StatusCode::PRECONDITION_FAILED),
    ] {
        let response = stage.send("GET", &url, &[("if-match", condition)], b"");
        assert_eq!(response.status(), status, "{condition}");
    }
    for (condition, status) in [
        (&*tag, StatusCode::PARTIAL_CONTENT),
        ("\"other\"", StatusCode::OK),
        // A weak tag never matches, and a date is not the modification time of a file without one.
        (&*format!("W/{tag}"), StatusCode::OK),
        ("Wed, 21 Oct 2026 07:28:00 GMT", StatusCode::OK),
    ] {
        let response = stage.send("GET", &url, &[("range", "bytes=0-0"), ("if-range", condition)], b"");
        assert_eq!(response.status(), status);
    }
}

#[test]
fn section_10_1_nothing_of_a_file_runs_in_a_browser() {
    let stage = stage(&[]);
    let body = b"<script>alert(1)</script>";
    for (content_type, want) in [
        ("text/html", ("application/octet-stream", "attachment")),
        ("image/svg+xml", ("application/octet-stream", "attachment")),
        ("application/pdf", ("application/pdf", "attachment")),
        ("image/png", ("image/png", "inline")),
    ] {
        let served = stage.get(&stage.upload("a.html", content_type, body));
        let disposition = header(&served, "content-disposition").split(';').next().unwrap();
        assert_eq!((header(&served, "content-type"), disposition), want);
        assert_eq!(header(&served, "x-content-type-options"), "nosniff");
        let policy = header(&served, "content-security-policy");
        assert!(policy.contains("default-src 'none'; frame-ancestors 'none'"), "{policy}");
    }
}

#[test]
fn a_file_name_cannot_inject_a_header_or_leave_its_path() {
    let stage = stage(&[]);
    for (name, segment) in [
        ("../../../etc/passwd", "passwd"),
        ("a&#13;&#10;Set-Cookie: x=y", "aSet-Cookie%3A%20x%3Dy"),
        ("a&quot;; filename=&quot;b.exe", "a%22%3B%20filename%3D%22b.exe"),
        ("..", "file"),
    ] {
        let url = stage.upload(name, "text/plain", b"1");
        assert_eq!(url.rsplit('/').next().unwrap(), segment);
        let served = stage.get(&url);
        assert_eq!(header(&served, "content-disposition"), format!("inline; filename*=UTF-8''{segment}"));
        assert!(served.headers().get("set-cookie").is_none());
    }
}

#[test]
fn files_and_slots_are_removed_with_their_account() {
    let stage = stage(&[]);
    let url = stage.upload("a.txt", "text/plain", b"1");
    let (put, _) = stage.slot("b.txt", 1, "text/plain");
    stage.engine.create_user("juliet");
    let juliet = stage.engine.connect("juliet", "balcony");
    let payload = REQUEST.replace("23456", "1");
    let (put_of_juliet, get_of_juliet) = slot_of(&request(&juliet, &payload));
    assert_eq!(stage.put(&put_of_juliet, "image/jpeg", b"j"), StatusCode::CREATED);
    let host = stage.engine.node.host("example.com").unwrap();
    stage.engine.node.account_removed(&host, stage.romeo.bare(), Vec::new());
    stage.engine.run_tasks();
    assert_eq!(stage.get(&url).status(), StatusCode::NOT_FOUND);
    assert_eq!(stage.put(&put, "text/plain", b"1"), StatusCode::FORBIDDEN);
    assert_eq!(stage.get(&get_of_juliet).status(), StatusCode::OK, "files of others stay");
}

#[test]
fn a_lost_connection_returns_the_slot() {
    let stage = stage(&[]);
    let (put, get) = stage.slot("a.txt", 5, "text/plain");
    let chunks = Box::pin(Silent);
    let body = HttpRouteBody::Stream { chunks, length: Some(5) };
    let request = Request::put(&put).header("content-type", "text/plain").body(body).unwrap();
    let matched =
        feature_api::http_route::match_http_route(&stage.engine.node, request.uri().path()).unwrap();
    let mut answer = matched.route.handler.answer(HttpRouteRequest {
        node: stage.engine.node.clone(),
        host: matched.host,
        request,
        path: matched.path,
        peer: std::net::Ipv4Addr::LOCALHOST.into(),
        secure: true,
    });
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(answer.as_mut().poll(&mut context).is_pending());
    assert_eq!(stage.put(&put, "text/plain", b"12345"), StatusCode::CONFLICT, "it is in use");
    drop(answer);
    assert_eq!(stage.put(&put, "text/plain", b"12345"), StatusCode::CREATED);
    assert_eq!(stage.get(&get).body(), b"12345");
}

/// Has no chunk, and never ends.
struct Silent;

impl futures_core::Stream for Silent {
    type Item = Result<bytes::Bytes, feature_api::http_route::HttpBodyError>;

    fn poll_next(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        std::task::Poll::Pending
    }
}

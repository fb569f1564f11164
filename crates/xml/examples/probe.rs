use throng_xml::*;
const MESSAGE: &str = "<message from='romeo@montague.example/orchard' id='ktx72v49' to='juliet@capulet.example/balcony' \
    type='chat' xml:lang='en'><body>Art thou not Romeo, and a Montague?</body><active \
    xmlns='http://jabber.org/protocol/chatstates'/><request xmlns='urn:xmpp:receipts'/></message>";
fn main() {
    let scope = Scope::client();
    let l = Limits::DEFAULT;
    let mut best = f64::MAX;
    for _ in 0..2000 {
        let t = std::time::Instant::now();
        for _ in 0..1000 {
            let mut r = Reader::new(std::hint::black_box(MESSAGE.as_bytes()), &scope, &l).unwrap();
            let mut n = 0;
            while let Some(e) = r.next().unwrap() {
                if let Event::Start(s) = &e {
                    n += s.name.len();
                }
            }
            std::hint::black_box(n);
        }
        best = best.min(t.elapsed().as_secs_f64() * 1e6);
    }
    println!("read {best:.1} ns");
}

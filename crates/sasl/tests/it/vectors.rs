//! Test vectors: whole exchanges with known bytes. RFC 5802, section 5, RFC 6120, section 9.1 (steps 9 to 12), and RFC
//! 7677, section 3; the other two were computed with Python's hashlib and hmac, which also reproduced the first two.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::*;

struct Vector {
    mechanism: Mechanism,
    user: (&'static str, &'static str),
    gs2: Gs2,
    salt: &'static str,
    first: &'static str,
    challenge: &'static str,
    last: &'static str,
    success: &'static str,
}

fn vectors() -> [Vector; 5] {
    [
        Vector {
            mechanism: Mechanism::ScramSha1,
            user: ("user", "pencil"),
            gs2: Gs2::None,
            salt: "QSXCR+Q6sek8bf92",
            first: "n,,n=user,r=fyko+d2lbbFgONRv9qkxdawL",
            challenge: "r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096",
            last: "c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=",
            success: "v=rmF9pqV8S7suAoZWja4dJRkFsKQ=",
        },
        Vector {
            mechanism: Mechanism::ScramSha1,
            user: ("juliet", "r0m30myr0m30"),
            gs2: Gs2::None,
            salt: "NjhkYTM0MDgtNGY0Zi00NjdmLTkxMmUtNDlmNTNmNDNkMDMz",
            first: "n,,n=juliet,r=oMsTAAwAAAAMAAAANP0TAAAAAABPU0AA",
            challenge: "r=oMsTAAwAAAAMAAAANP0TAAAAAABPU0AAe124695b-69a9-4de6-9c30-b51b3808c59e,\
                        s=NjhkYTM0MDgtNGY0Zi00NjdmLTkxMmUtNDlmNTNmNDNkMDMz,i=4096",
            last: "c=biws,r=oMsTAAwAAAAMAAAANP0TAAAAAABPU0AAe124695b-69a9-4de6-9c30-b51b3808c59e,\
                   p=UA57tM/SvpATBkH2FXs0WDXvJYw=",
            success: "v=pNNDFVEQxuXxCoSEiW8GEZ+1RSo=",
        },
        Vector {
            mechanism: Mechanism::ScramSha256,
            user: ("user", "pencil"),
            gs2: Gs2::None,
            salt: "W22ZaJ0SNY7soEsUEjb6gQ==",
            first: "n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
            challenge: "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
            last: "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                   p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
            success: "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
        },
        Vector {
            mechanism: Mechanism::ScramSha512,
            user: ("user", "pencil"),
            gs2: Gs2::None,
            salt: "MDEyMzQ1Njc4OWFiY2RlZg==",
            first: "n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
            challenge: "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=MDEyMzQ1Njc4OWFiY2RlZg==,i=4096",
            last: "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=VGyrj2eHvI+WpGHthq72MbY4w3VveKSl\
                   Np58BUW5Dyg3+qi63gSDCxWPN7Z99mA7dIjpfu/PP5VuKSH2FXh6VQ==",
            success: "v=GSDOo4R7sl2iYhZeNid7pJugJIIK00Ey/hvF3VxtopZ4YMP/PZG5qXR5ZxZEAn+nVajcQGgE4oynsoEIYaHsLg==",
        },
        Vector {
            mechanism: Mechanism::ScramSha256Plus,
            user: ("user", "pencil"),
            gs2: bound("tls-exporter", &std::array::from_fn::<u8, 32, _>(|at| at as u8)),
            salt: "W22ZaJ0SNY7soEsUEjb6gQ==",
            first: "p=tls-exporter,,n=user,r=rOprNGfwEbeRWgbNEkqO",
            challenge: "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
            last: "c=cD10bHMtZXhwb3J0ZXIsLAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f,\
                   r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=QC6CS20quADQRb3mT99YUH+n3VJxUvzuK0K0E1Vrs2M=",
            success: "v=2GiAgapEppLVlUXbxUDksL3VgYHzuqiK5tR4mhJGgvs=",
        },
    ]
}

#[test]
fn server_and_client_match_the_test_vectors() {
    for vector in vectors() {
        let (username, password) = vector.user;
        let hash = vector.mechanism.hash().unwrap();
        let client_nonce = vector.first.rsplit_once("r=").unwrap().1;
        let server_nonce =
            vector.challenge.split(',').next().unwrap()[2..].strip_prefix(client_nonce).unwrap();
        let salt = STANDARD.decode(vector.salt).unwrap();
        let stored = Credentials::derive_for(&[hash], password, 4096, &salt).unwrap();
        let decoy = Decoy::new(&Secret::new(*b"x"), 4096);
        let binding = match &vector.gs2 {
            Gs2::Bound { data, .. } => {
                ChannelBindingData { exporter: Some(data.clone()), server_end_point: None }
            }
            _ => ChannelBindingData::default(),
        };
        let mut client =
            ScramClient::new(hash, vector.gs2.clone(), username, password).with_nonce(client_nonce);
        assert_eq!(client.mechanism(), vector.mechanism);

        let mut exchange =
            Exchange::new(vector.mechanism, !binding.is_empty(), binding, server_nonce.to_owned());
        assert_eq!(String::from_utf8(client.client_first()).unwrap(), vector.first);
        let step = exchange.step(Some(vector.first.as_bytes()));
        assert_eq!(step, ExchangeStep::NeedCredentials { username: username.into() });
        let step = exchange.credentials(Some(&stored), &decoy, username);
        assert_eq!(step, ExchangeStep::Challenge(vector.challenge.into()));
        let last = client.client_final(vector.challenge.as_bytes(), None).unwrap();
        assert_eq!(String::from_utf8(last).unwrap(), vector.last);
        let done = ExchangeStep::Done {
            username: username.into(),
            authzid: None,
            additional: Some(vector.success.into()),
        };
        assert_eq!(exchange.step(Some(vector.last.as_bytes())), done);
        assert_eq!(client.verify(vector.success.as_bytes()), Ok(()));
    }
}

/// XEP-0474 (0.5.0), section 5.3: the whole example, with the client's extension `x=`.
#[test]
fn the_example_of_downgrade_protection() {
    let nonce = "12C4CD5C-E38E-4A98-8F6D-15C38F51CCC6a09117a6-ac50-4f2f-93f1-93799c2bddf6";
    let salt = STANDARD.decode("QSXCR+Q6sek8bf92").unwrap();
    let stored = Credentials::derive_for(&[ScramHash::Sha1], "pencil", 4096, &salt).unwrap();
    let decoy = Decoy::new(&Secret::new(*b"x"), 4096);
    let data = b"THIS IS FAKE CB DATA".to_vec();
    let binding = ChannelBindingData { exporter: Some(data), server_end_point: Some(vec![1]) };
    let offered = [Mechanism::ScramSha1, Mechanism::ScramSha1Plus].into_iter().collect();
    let mut exchange = Exchange::new(Mechanism::ScramSha1Plus, true, binding, nonce[36..].to_owned())
        .with_downgrade_protection(offered);
    let first = format!("p=tls-exporter,,n=user,r={}", &nonce[..36]);
    assert_eq!(
        exchange.step(Some(first.as_bytes())),
        ExchangeStep::NeedCredentials { username: "user".into() }
    );
    let challenge = format!("r={nonce},s=QSXCR+Q6sek8bf92,i=4096,h=G6k/rBLDqgOhRRaCuuatSDFkJ08=");
    assert_eq!(
        exchange.credentials(Some(&stored), &decoy, "user"),
        ExchangeStep::Challenge(challenge.into_bytes())
    );
    let last = format!(
        "c=cD10bHMtZXhwb3J0ZXIsLFRISVMgSVMgRkFLRSBDQiBEQVRB,r={nonce},\
         x=19C6532F-1CF4-4A27-A18D-DC9CEA41BBB3,p=M/SIDjT+dfcxUh89jZEypRvFxB4="
    );
    let additional = Some(b"v=MQrMPvv7yv4x4Cq4W4Ih25EqS2c=".to_vec());
    let done = ExchangeStep::Done { username: "user".into(), authzid: None, additional };
    assert_eq!(exchange.step(Some(last.as_bytes())), done);
}

/// XEP-0480, section 3. (The hash in its example does not belong to a password that it names.)
#[test]
fn an_upgrade_derives_the_same_keys_as_the_password() {
    let salt = STANDARD.decode("QV9TWENSWFE2c2VrOGJmX1o=").unwrap();
    let salted = sasl::client::salted_password(ScramHash::Sha256, "pencil", &salt, 4096).unwrap();
    let mut stored = Credentials::derive_for(&[ScramHash::Sha1], "pencil", 4096, b"another salt").unwrap();
    assert!(stored.add_salted(ScramHash::Sha256, &salt, 4096, &salted));
    let derived = Credentials::derive_for(&[ScramHash::Sha256], "pencil", 4096, &salt).unwrap();
    assert_eq!(stored.sha256, derived.sha256);
    assert!(stored.sha1.is_some() && stored.verify_password("pencil"));
    for (salt, iterations, salted) in
        [(&salt[..], 0, &salted[..]), (&[], 4096, &salted), (&salt, 4096, &salted[1..])]
    {
        assert!(!stored.add_salted(ScramHash::Sha512, salt, iterations, salted));
    }
    assert!(stored.sha512.is_none());
}

//! Tests of tls-server-end-point over certificates made with OpenSSL (all from `openssl req -x509`); the hashes were
//! computed with coreutils.

use sasl::ChannelBindingData;
use sasl::channel_binding::server_end_point;
use throng_sasl as sasl;

fn hex(data: Option<Vec<u8>>) -> String {
    data.map_or("none".to_owned(), |data| data.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[test]
fn the_hash_is_that_of_the_signature_and_never_weaker_than_sha_256() {
    for (certificate, expected) in [
        (
            &include_bytes!("certificates/ecdsa-sha256.der")[..],
            "ecebaee4a3f8f9191313f1f8bf11c203cc851c3b4ad930f303d785589d4b12d7",
        ),
        (
            include_bytes!("certificates/ecdsa-sha384.der"),
            "5057ff919797c4ba23c47896adae287afee475463d2bc49152fdc5027b697450026fcaae1cb5315cc0c72def9a36615d",
        ),
        (
            include_bytes!("certificates/rsa-sha512.der"),
            "de5ad9e8373bc8a96c96b83df9145b195658364174d4cdf5730cc345e7c51db4\
             9ac9ef7dd8d90026dc2232ae620028c582194b47bce7951a2ec1f95e64533a86",
        ),
        (
            include_bytes!("certificates/rsa-sha1.der"),
            "3202e90eb57264c354b2a9ad589aa43d2d335a34a57d9b13dee8e2374d5634be",
        ),
        (
            include_bytes!("certificates/pss-sha256.der"),
            "cf5360ec01b09a70e51591afac78b504b3a193404092eeebd3f3da8ffff8928b",
        ),
        (
            include_bytes!("certificates/pss-sha384.der"),
            "64d1837ad67380dda8782e9e1046f8bbb40cbf9585245823db0b01a1fa2b9d2880ab15111b5431af0f95ac94b6470ad0",
        ),
        // RFC 5929 defines nothing for a signature without a hash function of its own.
        (include_bytes!("certificates/ed25519.der"), "none"),
    ] {
        assert_eq!(hex(server_end_point(certificate)), expected);
    }
}

#[test]
fn data_that_is_no_certificate_has_no_channel_binding() {
    let good = include_bytes!("certificates/ecdsa-sha256.der");
    for len in 0..good.len() {
        assert_eq!(server_end_point(&good[..len]), None, "cut at {len}");
    }
    assert_eq!(server_end_point(&[good.as_slice(), b"\0"].concat()), None);
    assert_eq!(server_end_point(b"-----BEGIN CERTIFICATE-----"), None);
    assert_eq!(server_end_point(&[0x30, 0x84, 0xff, 0xff, 0xff, 0xff]), None);
    assert_eq!(server_end_point(&[0x30, 0x80, 0, 0]), None);
}

#[test]
fn available_channel_bindings_are_listed_strongest_first() {
    let types = |binding: &ChannelBindingData| binding.types().collect::<Vec<_>>();
    let both = ChannelBindingData { exporter: Some(vec![1]), server_end_point: Some(vec![2]) };
    assert_eq!(types(&both), ["tls-exporter", "tls-server-end-point"]);
    assert_eq!(
        (both.get("tls-exporter"), both.get("tls-server-end-point")),
        (Some(&[1][..]), Some(&[2][..]))
    );
    let one = ChannelBindingData { exporter: None, ..both };
    assert_eq!(types(&one), ["tls-server-end-point"]);
    assert!(!one.is_empty() && ChannelBindingData::default().is_empty());
    assert_eq!((one.get("tls-exporter"), one.get("tls-unique"), one.get("")), (None, None, None));
    assert!(types(&ChannelBindingData::default()).is_empty());
}

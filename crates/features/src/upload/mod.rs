//! HTTP File Upload: XEP-0363 1.2.0, with files on the disk of the node.
//!
//! A user of the domain requests a slot from the service and receives two URLs: one that accepts the file once, soon, and
//! with exactly the announced size and type, and one at which anyone who knows it reads the file. Both carry a signature
//! with a key of the deployment, so that nothing is looked up for a URL that was not issued.
//!
//! | File | Content |
//! | --- | --- |
//! | `request` | the request for a slot (sections 4 to 6) |
//! | `quota` | slots that are not used yet, and used bytes |
//! | `signed_url` | what the URLs contain |
//! | `transfer` | PUT, GET and HEAD |
//! | `byte_range` | `Range`, `If-Match` and `If-None-Match` |
//! | `content_type` | which types a browser may show |
//! | `expiry` | the periodic job |
//!
//! Not implemented: the purpose `permanent`; object stores; removal of single files.
//!
//! # Pitfalls
//!
//! Files are on the node that issued the slot, and unused slots are in its memory: the public URL must lead to that node.
//! After a restart a client must request its slots again. Slots are not stored, because they live for minutes, and because
//! one that was revoked with its account could not be distinguished from one of an earlier process.
//!
//! The folder of an account is removed by the node on which the account is removed. Files of an account that is removed
//! while the node is stopped, or by another node, remain until they expire; those without an expiry, such as files for a
//! profile, remain permanently.

mod byte_range;
mod content_type;
mod expiry;
mod quota;
mod request;
mod signed_url;
#[cfg(test)]
mod tests;
mod transfer;

use std::sync::Arc;

use base::spawn::BoxFuture;
use feature_api::disco::{DiscoForm, DiscoIdentity};
use feature_api::feature::{
    DiscoFeature, Feature, FeatureBuilder, FeatureOptions, OptionKind, OptionSpec, OptionValue, Spec,
};
use feature_api::http_route::{HttpRouteRequest, HttpRouteSpec};
use feature_api::periodic_job::{JobScope, PeriodicJobCtx, PeriodicJobSpec};
use feature_api::service::ServiceSpec;
use throng_core::Node;
use throng_core::file_storage::{FileDirectory, SharedFileStorage};
use throng_core::hooks::{Flow, HandlerOutcome, Phase, RemovedCtx};
use throng_core::iq::{IqFlow, IqKey, IqRequest, IqTarget};
use throng_core::server_secret::ServerSecret;
use xml::Ns;

use self::quota::UploadQuota;
use self::signed_url::UrlSigner;

/// HTTP File Upload.
pub static FEATURE: Feature = Feature {
    name: "upload",
    summary: "Accepts files of users over HTTP and serves them to everyone who knows their address. Requires a listener of \
              kind `https`, or `[http] public_url` with a reverse proxy; a local `http` listener serves the domain \
              `localhost`. A reverse proxy must pass `/upload/` on, with bodies of `max_file_bytes`.",
    specs: &[Spec {
        name: "XEP-0363",
        title: "HTTP File Upload",
        version: "1.2.0",
        not_implemented: "the purpose `permanent`",
    }],
    disco: &[
        DiscoFeature::Service(Ns::HttpUpload0.as_str()),
        DiscoFeature::Service("urn:xmpp:http:upload:purpose:0#message"),
        DiscoFeature::Service("urn:xmpp:http:upload:purpose:0#profile"),
        DiscoFeature::Service("urn:xmpp:http:upload:purpose:0#ephemeral"),
    ],
    service: Some(&ServiceSpec {
        identity: DiscoIdentity { category: "store", kind: "file", name: "HTTP File Upload" },
    }),
    http_routes: &[&FILES],
    periodic_jobs: &[&REMOVE_EXPIRED],
    iq: &[SLOT],
    options: &[
        ServiceSpec::address_option("upload.{domain}"),
        ServiceSpec::rate_option(10),
        OptionSpec {
            key: "directory",
            kind: OptionKind::Text,
            default: OptionValue::Text(std::borrow::Cow::Borrowed("upload")),
            doc: "Directory of the files, each domain in a directory of its own; relative to `data_dir`.",
        },
        bytes("max_file_bytes", 100_000_000, "Size of a file in bytes; 0: unlimited."),
        bytes(
            "bytes_per_user",
            1_000_000_000,
            "Bytes of all files of one user, each in blocks of 4096; 0: unlimited. A user may have 10000 files.",
        ),
        bytes(
            "profile_bytes_per_user",
            10_000_000,
            "Bytes of files for the profile of one user, such as avatars, each in blocks of 4096.",
        ),
        bytes(
            "bytes",
            10_000_000_000,
            "Bytes of all files of the domain, each in blocks of 4096; 0: unlimited.",
        ),
        number("slots_per_user", 10_000, 50, "Slots that one user may request within `slot_seconds`."),
        number("slot_seconds", 3600, 300, "Seconds within which a file must be sent."),
        number(
            "retention_days",
            36_500,
            30,
            "Days after which a file is removed, unless it is for a profile; 0: when its account is removed.",
        ),
    ],
    default_on: false,
    build,
    ..Feature::EMPTY
};

const fn number(key: &'static str, max: i64, default: i64, doc: &'static str) -> OptionSpec {
    OptionSpec { key, kind: OptionKind::Int(0, max), default: OptionValue::Int(default), doc }
}

const fn bytes(key: &'static str, default: i64, doc: &'static str) -> OptionSpec {
    number(key, 1_000_000_000_000_000, default, doc)
}

const SLOT: IqKey = IqKey::get(IqTarget::Service, Ns::HttpUpload0, "request");
/// `/upload/DOMAIN/TOKEN/NAME`
static FILES: HttpRouteSpec = HttpRouteSpec {
    prefix: "upload",
    methods: &["GET", "HEAD", "PUT"],
    doc: "Sends and reads uploaded files.",
};
static REMOVE_EXPIRED: PeriodicJobSpec = PeriodicJobSpec {
    name: "remove_expired_uploads",
    interval_seconds: 3600,
    scope: JobScope::Node,
    doc: "Removes expired files and counts the others.",
};

/// Options of a domain.
#[derive(Clone, Debug)]
struct UploadOptions {
    /// Directory of the domain.
    directory: String,
    /// Bytes of a file.
    max_file_bytes: u64,
    bytes_per_user: u64,
    profile_bytes_per_user: u64,
    bytes: u64,
    slots_per_user: usize,
    slot_seconds: u64,
    /// 0: none.
    retention_seconds: u64,
}

impl UploadOptions {
    fn new(options: &FeatureOptions, domain: &str) -> UploadOptions {
        let of = |key: &str| options.int(key).unsigned_abs();
        let unless_zero = |key: &str| Some(of(key)).filter(|bytes| *bytes > 0).unwrap_or(u64::MAX);
        let bytes_per_user = unless_zero("bytes_per_user");
        let bytes = unless_zero("bytes");
        UploadOptions {
            directory: format!("{}/{domain}", options.text("directory").trim_end_matches('/')),
            max_file_bytes: unless_zero("max_file_bytes").min(bytes_per_user).min(bytes),
            bytes_per_user,
            profile_bytes_per_user: of("profile_bytes_per_user"),
            bytes,
            slots_per_user: usize::try_from(of("slots_per_user")).unwrap_or(usize::MAX),
            slot_seconds: of("slot_seconds"),
            retention_seconds: of("retention_days") * 24 * 60 * 60,
        }
    }
}

/// What the handlers of a domain share.
#[derive(Clone)]
struct Uploads {
    options: Arc<UploadOptions>,
    quota: Arc<UploadQuota>,
}

/// What the program provides.
struct UploadEnvironment {
    files: Arc<dyn FileDirectory>,
    signer: UrlSigner,
    /// Seconds since 1970.
    now: u64,
}

impl Uploads {
    /// `None` if the program provides no storage.
    fn environment(&self, node: &Node, domain: &str) -> Option<UploadEnvironment> {
        let files = node.extensions.get::<SharedFileStorage>()?.directory(&self.options.directory);
        let signer = UrlSigner::new(&*node.extensions.get::<ServerSecret>()?, domain);
        Some(UploadEnvironment { files, signer, now: node.clock.unix_millis() / 1000 })
    }
}

fn build(builder: &mut FeatureBuilder<'_>) {
    let options = UploadOptions::new(builder.options, builder.domain);
    if options.max_file_bytes < u64::MAX {
        builder.service_disco_form(DiscoForm {
            form_type: Ns::HttpUpload0.as_str().to_owned(),
            fields: vec![("max-file-size".to_owned(), vec![options.max_file_bytes.to_string()])],
        });
    }
    let quota = builder.shared_state(UploadQuota::default);
    let uploads = Uploads { options: Arc::new(options), quota };
    let shared = uploads.clone();
    builder.iq(SLOT, move |request: &mut IqRequest<'_>| match request::slot(&shared, request) {
        Ok(answer) => IqFlow::wait(answer),
        Err(error) => IqFlow::error(error),
    });
    let shared = uploads.clone();
    builder.http_route(&FILES, move |request: HttpRouteRequest| -> BoxFuture<'static, _> {
        Box::pin(transfer::answer(shared.clone(), request))
    });
    let shared = uploads.clone();
    builder.periodic_job(&REMOVE_EXPIRED, move |ctx: PeriodicJobCtx| -> BoxFuture<'static, _> {
        Box::pin(expiry::run(shared.clone(), ctx))
    });
    builder.removed(Phase::Archive, move |ctx: &mut RemovedCtx<'_>| account_removed(&uploads, ctx));
}

/// Removes the files of a removed account, and revokes its slots.
fn account_removed(uploads: &Uploads, ctx: &mut RemovedCtx<'_>) -> Flow {
    let Some(environment) = uploads.environment(ctx.node, ctx.host.domain()) else { return Flow::Next };
    let owner = environment.signer.owner(ctx.jid);
    uploads.quota.revoke(owner);
    let (removal, jid) = (environment.files.remove_folder(&owner.folder()), ctx.jid.bare().to_jid());
    Flow::Wait(Box::pin(async move {
        if let Err(error) = removal.await {
            tracing::warn!(%jid, %error, "cannot remove the uploaded files of a removed account");
        }
        HandlerOutcome::next()
    }))
}

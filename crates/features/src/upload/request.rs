//! The request for a slot (sections 4 to 6).

use feature_api::http_route::http_route_url;
use jid::Jid;
use stanza::payload::datetime::{format_utc, parse_datetime};
use stanza::{StanzaCondition, StanzaError};
use throng_core::iq::{IqAnswer, IqRequest};
use xml::{Ns, TreeNode, Writer};

use super::quota::{CountedFile, QuotaRefusal, occupied_bytes};
use super::signed_url::{FileClass, FileId, SlotTerms, StoredName, UploadedFile, file_name};
use super::{FILES, UploadOptions, Uploads, content_type};

const PURPOSES: &str = "urn:xmpp:http:upload:purpose:0";

/// A valid request.
struct SlotRequest {
    name: String,
    size: u64,
    content_type: String,
    class: FileClass,
    keep_until: u64,
}

/// Answers a request for a slot.
pub(super) fn slot(
    uploads: &Uploads,
    request: &IqRequest<'_>,
) -> Result<impl Future<Output = IqAnswer> + Send + 'static, StanzaError> {
    if !request.is_from_user_of_domain() {
        let text = format!("Only users of {} may upload files", request.host.domain());
        return Err(StanzaError::new(StanzaCondition::Forbidden).text(text));
    }
    let not_available = |text: &'static str| StanzaError::new(StanzaCondition::ServiceUnavailable).text(text);
    let environment = uploads.environment(request.node, request.host.domain());
    let environment = environment.ok_or_else(|| not_available("This server stores no files"))?;
    let base = http_route_url(request.node, request.host, &FILES);
    let base = base.ok_or_else(|| not_available("This server has no public URL"))?;
    let tree = request.tree()?;
    let element = tree.root().child("request", Ns::HttpUpload0).ok_or(StanzaCondition::BadRequest)?;
    let wanted = SlotRequest::parse(element, &uploads.options, environment.now)?;
    let (uploads, from): (Uploads, Jid) = (uploads.clone(), request.from.bare().to_jid());
    let node = request.node.clone();
    Ok(async move {
        let now = environment.now;
        let owner = environment.signer.owner(from.as_ref());
        let may_request = uploads.quota.check_slots(&uploads.options, owner, now);
        may_request.map_err(quota_error)?;
        let entries = environment.files.list(&owner.folder()).await.map_err(|error| {
            tracing::warn!(user = %from, %error, "cannot read the folder of a user's uploads");
            StanzaError::new(StanzaCondition::InternalServerError)
        })?;
        let counted = |entry: &throng_core::file_storage::FileEntry| {
            Some(CountedFile {
                stored: StoredName::parse(&entry.name)?,
                occupied: occupied_bytes(entry.size),
            })
        };
        let files: Vec<CountedFile> = entries.iter().filter_map(counted).collect();
        let id = FileId::random();
        let terms = SlotTerms {
            deadline: now.saturating_add(uploads.options.slot_seconds.max(1)),
            size: wanted.size,
        };
        let reserved = uploads.quota.reserve(&uploads.options, (owner, id, wanted.class), terms, &files, now);
        reserved.map_err(quota_error)?;
        // Its account may have been removed while the files were listed, after which nothing revokes the slot.
        if node.routing_table.find(from.as_ref()).is_none() {
            uploads.quota.cancel(owner, id);
            return Err(StanzaError::new(StanzaCondition::Forbidden).text("The account does not exist"));
        }
        let file = UploadedFile {
            id,
            owner,
            keep_until: wanted.keep_until,
            class: wanted.class,
            content_type: wanted.content_type,
            name: wanted.name,
        };
        let get = format!("{base}/{}", environment.signer.path(&file));
        let put = format!("{get}?{}", environment.signer.slot_query(&file, terms));
        let mut out = Vec::with_capacity(512);
        let mut writer = Writer::new(&mut out);
        writer.start_ns("slot", Ns::HttpUpload0);
        writer.start("put").attr("url", &put).end();
        writer.start("get").attr("url", &get).end();
        writer.end();
        Ok(out)
    })
}

impl SlotRequest {
    fn parse(element: TreeNode<'_>, options: &UploadOptions, now: u64) -> Result<SlotRequest, StanzaError> {
        let bad = |text: &'static str| StanzaError::new(StanzaCondition::BadRequest).text(text);
        let name = element.attr("filename").filter(|name| !name.trim().is_empty());
        let name = file_name(&name.ok_or_else(|| bad("The request has no file name"))?);
        let size = element.attr("size").and_then(|size| size.trim().parse::<u64>().ok());
        let size = size
            .filter(|size| *size > 0)
            .ok_or_else(|| bad("The size must be a positive number of bytes"))?;
        let content_type = match element.attr("content-type").filter(|written| !written.trim().is_empty()) {
            None => String::new(),
            Some(written) => {
                content_type::normalize(&written).ok_or_else(|| bad("The content type is malformed"))?
            }
        };
        let until = |seconds: u64| if seconds == 0 { 0 } else { now.saturating_add(seconds) };
        let retained = until(options.retention_seconds);
        let purpose = element.child_elements().find(|child| child.ns_text() == PURPOSES);
        let (class, keep_until) = match purpose.map(|purpose| (purpose.name(), purpose)) {
            None | Some(("message", _)) => (FileClass::Message, retained),
            Some(("profile", _)) => (FileClass::Profile, 0),
            Some(("ephemeral", purpose)) => {
                let written = purpose.attr("expire-before").and_then(|text| parse_datetime(text.trim()));
                let millis = written.ok_or_else(|| bad("expire-before must be a date and time"))?;
                let end = u64::try_from(millis).unwrap_or(0) / 1000;
                if end <= now {
                    return Err(StanzaError::new(StanzaCondition::NotAcceptable)
                        .text("The time of expire-before has passed"));
                }
                (FileClass::Message, if retained == 0 { end } else { end.min(retained) })
            }
            Some(_) => {
                return Err(StanzaError::new(StanzaCondition::FeatureNotImplemented)
                    .text("Files for this purpose are not stored here"));
            }
        };
        let max = match class {
            FileClass::Message => options.max_file_bytes,
            FileClass::Profile => options.max_file_bytes.min(options.profile_bytes_per_user),
        };
        if size > max {
            return Err(too_large(max));
        }
        Ok(SlotRequest { name, size, content_type, class, keep_until })
    }
}

/// Section 7, first example.
fn too_large(max: u64) -> StanzaError {
    StanzaError::new(StanzaCondition::NotAcceptable)
        .text(format!("File too large. The maximum file size is {max} bytes"))
        .application_element(|writer| {
            writer
                .start_ns("file-too-large", Ns::HttpUpload0)
                .text_element("max-file-size", &max.to_string())
                .end();
        })
}

/// Section 7, second example.
fn quota_error(refusal: QuotaRefusal) -> StanzaError {
    let (text, retry) = match refusal {
        QuotaRefusal::TooManySlots { retry } => {
            ("Quota reached. You have requested too many slots", Some(retry))
        }
        QuotaRefusal::UserFull { retry } => {
            ("Quota reached. Your files are too many or occupy too much space", retry)
        }
        QuotaRefusal::DomainFull { retry } => {
            ("The server has no space for files at the moment", Some(retry))
        }
    };
    let error = StanzaError::new(StanzaCondition::ResourceConstraint).text(text);
    match retry {
        None => error,
        Some(seconds) => error.application_element(|writer| {
            let stamp = format_utc(seconds.saturating_mul(1000), false);
            writer.start_ns("retry", Ns::HttpUpload0).attr("stamp", &stamp).end();
        }),
    }
}

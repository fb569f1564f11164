//! PUT, GET and HEAD of files (section 8 and the recommendations of sections 9 and 10).
//!
//! # Pitfalls
//!
//! Everything about a PUT is checked before the first byte of its body is read.

use std::ops::Range;
use std::sync::Arc;

use base::percent_encoding::percent_encode;
use bytes::Bytes;
use feature_api::http_route::{HttpBodyError, HttpRouteBody, HttpRouteRequest};
use http::header::{self, HeaderName};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use throng_core::file_storage::FileError;

use super::byte_range::{RequestedRange, match_has, none_match_has, requested_range};
use super::quota::{SlotRefusal, UploadQuota};
use super::signed_url::UploadedFile;
use super::{UploadEnvironment, Uploads, content_type};

/// Seconds of a year, which caches understand as forever.
const YEAR_SECONDS: u64 = 31_536_000;

/// Answers a request.
pub(super) async fn answer(uploads: Uploads, request: HttpRouteRequest) -> Response<HttpRouteBody> {
    let Some(environment) = uploads.environment(&request.node, request.host.domain()) else {
        return text(StatusCode::SERVICE_UNAVAILABLE, "this server stores no files");
    };
    let Some(file) = environment.signer.file(&request.path) else {
        return text(StatusCode::NOT_FOUND, "there is no such file");
    };
    if *request.request.method() == Method::PUT {
        put(&uploads.quota, &environment, file, request).await
    } else {
        let is_head = *request.request.method() == Method::HEAD;
        get(&environment, &file, is_head, request.request.headers()).await
    }
}

async fn put(
    quota: &Arc<UploadQuota>,
    environment: &UploadEnvironment,
    file: UploadedFile,
    request: HttpRouteRequest,
) -> Response<HttpRouteBody> {
    let (head, body) = request.request.into_parts();
    let query = head.uri.query().unwrap_or_default();
    let Some(terms) = environment.signer.slot(&file, query) else {
        return text(StatusCode::FORBIDDEN, "this is not the address of a slot");
    };
    if terms.deadline <= environment.now || file.stored().is_expired(environment.now) {
        return text(StatusCode::GONE, "the slot has expired; request another one");
    }
    if head.headers.get(header::CONTENT_ENCODING).is_some_and(|coding| coding != "identity") {
        return text(StatusCode::UNSUPPORTED_MEDIA_TYPE, "the file must not be compressed for the transfer");
    }
    if head.headers.contains_key(header::CONTENT_RANGE) {
        return text(StatusCode::BAD_REQUEST, "the file must be sent as a whole");
    }
    match body.length() {
        None => return text(StatusCode::LENGTH_REQUIRED, "the request must have a Content-Length"),
        Some(length) if length > terms.size => {
            return text(StatusCode::PAYLOAD_TOO_LARGE, "the file is larger than its slot");
        }
        Some(length) if length < terms.size => {
            return text(StatusCode::BAD_REQUEST, "the file is smaller than its slot");
        }
        Some(_) => {}
    }
    let sent = head.headers.get(header::CONTENT_TYPE).map(|value| value.to_str().unwrap_or_default());
    if !file.content_type.is_empty()
        && !sent.is_some_and(|sent| content_type::is_same(sent, &file.content_type))
    {
        return text(StatusCode::UNSUPPORTED_MEDIA_TYPE, "the file has another type than its slot");
    }
    match quota.begin(file.owner, file.id) {
        Ok(()) => {}
        Err(SlotRefusal::Used) => return text(StatusCode::CONFLICT, "the slot has been used"),
        Err(SlotRefusal::Unknown) => {
            return text(StatusCode::FORBIDDEN, "the slot is not valid any more; request another one");
        }
    }
    let mut reception = Reception { quota: quota.clone(), file: &file, ended: false };
    let written = environment.files.write(&file.path(), terms.size, body).await;
    let is_valid = reception.end(written.is_ok());
    match written {
        Ok(()) if is_valid => text(StatusCode::CREATED, "the file has been stored"),
        Ok(()) => {
            // The account was removed meanwhile.
            let _ = environment.files.remove(&file.path()).await;
            text(StatusCode::FORBIDDEN, "the slot is not valid any more")
        }
        // Its folder was removed with the account.
        Err(_) if !is_valid => text(StatusCode::FORBIDDEN, "the slot is not valid any more"),
        // The client disconnected from an earlier request while its file was published, and repeats it.
        Err(FileError::Exists) => {
            quota.end(file.owner, file.id, true);
            match environment.files.size(&file.path()).await {
                Ok(Some(size)) if size == terms.size => text(StatusCode::CREATED, "the file has been stored"),
                _ => text(StatusCode::CONFLICT, "the slot has been used"),
            }
        }
        Err(FileError::WrongSize | FileError::Body(HttpBodyError::Incomplete | HttpBodyError::Source(_))) => {
            text(StatusCode::BAD_REQUEST, "the file is incomplete")
        }
        Err(FileError::Body(HttpBodyError::Timeout)) => {
            text(StatusCode::REQUEST_TIMEOUT, "the file was not received in time")
        }
        Err(FileError::DiskFull) => {
            let domain = request.host.domain();
            tracing::error!(domain, "cannot store an uploaded file: the disk is full");
            text(StatusCode::INSUFFICIENT_STORAGE, "the server has no space for the file")
        }
        Err(FileError::Disk(error)) => {
            tracing::error!(domain = request.host.domain(), error, "cannot store an uploaded file");
            text(StatusCode::INTERNAL_SERVER_ERROR, "the file cannot be stored")
        }
    }
}

/// Returns the slot if the request ends without a file, for example because its connection was lost.
struct Reception<'a> {
    quota: Arc<UploadQuota>,
    file: &'a UploadedFile,
    ended: bool,
}

impl Reception<'_> {
    fn end(&mut self, received: bool) -> bool {
        self.ended = true;
        self.quota.end(self.file.owner, self.file.id, received)
    }
}

impl Drop for Reception<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.end(false);
        }
    }
}

async fn get(
    environment: &UploadEnvironment,
    file: &UploadedFile,
    is_head: bool,
    request: &HeaderMap,
) -> Response<HttpRouteBody> {
    let not_found = || text(StatusCode::NOT_FOUND, "there is no such file");
    let disk_error = |error: FileError| {
        tracing::error!(%error, "cannot read an uploaded file");
        text(StatusCode::INTERNAL_SERVER_ERROR, "the file cannot be read")
    };
    if file.stored().is_expired(environment.now) {
        return not_found();
    }
    let path = file.path();
    let size = match environment.files.size(&path).await {
        Ok(Some(size)) => size,
        Ok(None) => return not_found(),
        Err(error) => return disk_error(error),
    };
    let tag = format!("\"{}\"", file.id.hex());
    let value = |name: HeaderName| request.get(name).and_then(|value| value.to_str().ok());
    let lists = |name: HeaderName| request.get_all(name).iter().map(|list| list.to_str().unwrap_or_default());
    // In the order of RFC 9110, section 13.2.2.
    if request.contains_key(header::IF_MATCH) && !lists(header::IF_MATCH).any(|list| match_has(list, &tag)) {
        return text(StatusCode::PRECONDITION_FAILED, "this is another version of the file");
    }
    if lists(header::IF_NONE_MATCH).any(|list| none_match_has(list, &tag)) {
        let mut response = Response::new(HttpRouteBody::Empty);
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        add_cache_headers(response.headers_mut(), environment, file, &tag);
        return response;
    }
    let range = match value(header::IF_RANGE) {
        // RFC 9110, section 14.2: ranges are defined for GET only.
        _ if is_head => None,
        Some(condition) if condition.trim() != tag => None,
        _ => value(header::RANGE),
    };
    let (status, range): (_, Range<u64>) = match requested_range(range, size) {
        RequestedRange::Whole => (StatusCode::OK, 0..size),
        RequestedRange::Part(range) => (StatusCode::PARTIAL_CONTENT, range),
        RequestedRange::Unsatisfiable => {
            let mut response = text(StatusCode::RANGE_NOT_SATISFIABLE, "the file does not have this range");
            set(response.headers_mut(), header::CONTENT_RANGE, format!("bytes */{size}"));
            return response;
        }
    };
    let body = if is_head {
        HttpRouteBody::Empty
    } else {
        match environment.files.read(&path, range.clone()).await {
            Ok(Some(body)) => body,
            Ok(None) => return not_found(),
            Err(error) => return disk_error(error),
        }
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_LENGTH, range.end.saturating_sub(range.start).into());
    if status == StatusCode::PARTIAL_CONTENT {
        let (first, last) = (range.start, range.end.saturating_sub(1));
        set(headers, header::CONTENT_RANGE, format!("bytes {first}-{last}/{size}"));
    }
    let served = content_type::served(&file.content_type);
    set(headers, header::CONTENT_TYPE, served.content_type);
    let disposition = if served.inline { "inline" } else { "attachment" };
    let name = percent_encode(&file.name);
    set(headers, header::CONTENT_DISPOSITION, format!("{disposition}; filename*=UTF-8''{name}"));
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    add_security_headers(headers);
    add_cache_headers(headers, environment, file, &tag);
    response
}

/// Files never change; they may expire.
fn add_cache_headers(
    headers: &mut HeaderMap,
    environment: &UploadEnvironment,
    file: &UploadedFile,
    tag: &str,
) {
    let left = match file.keep_until {
        0 => YEAR_SECONDS,
        end => end.saturating_sub(environment.now).min(YEAR_SECONDS),
    };
    set(headers, header::CACHE_CONTROL, format!("private, max-age={left}, immutable"));
    set(headers, header::ETAG, tag.to_owned());
}

/// Section 10.1: nothing of a file runs in the context of this host.
fn add_security_headers(headers: &mut HeaderMap) {
    for (name, value) in [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'; sandbox"),
        (HeaderName::from_static("cross-origin-resource-policy"), "cross-origin"),
        (header::REFERRER_POLICY, "no-referrer"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
}

fn set(headers: &mut HeaderMap, name: HeaderName, value: String) {
    if let Ok(value) = HeaderValue::try_from(value) {
        headers.insert(name, value);
    }
}

fn text(status: StatusCode, reason: &'static str) -> Response<HttpRouteBody> {
    let mut response = Response::new(HttpRouteBody::Full(Bytes::from(format!("{reason}\n"))));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    add_security_headers(headers);
    response
}

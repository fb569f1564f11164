//! vCards, and the table that user search reads.

use jid::JidRef;
use store::user_search::account_search_keys;
use store::{PhotoHash, SearchableProfile, StoreError, StoreFuture, Vcards};

use super::{TableStatements, accounts, bare};
use crate::SqlStores;
use crate::dialect::{Arg, DbConnection, Dialect};
use crate::writer::Owner;

pub(crate) struct VcardStatements {
    get: String,
    put: String,
    put_profile: String,
    remove: String,
    remove_profile: String,
    photo: String,
}

impl TableStatements for VcardStatements {
    const OWNED_TABLES: &'static [&'static str] = &["vcard", "profile"];

    fn new(d: &dyn Dialect) -> VcardStatements {
        let columns = [
            "domain",
            "username",
            "name_key",
            "first_key",
            "last_key",
            "nick_key",
            "email_key",
            "full_name",
            "first_name",
            "last_name",
            "nick",
            "email",
        ];
        VcardStatements {
            get: d.sql("SELECT v.card FROM address a JOIN vcard v ON v.owner = a.id WHERE a.jid = ?"),
            put: d.upsert("vcard", &["owner"], &["card"], 1),
            put_profile: d.upsert("profile", &["owner"], &columns, 1),
            remove: d.sql("DELETE FROM vcard WHERE owner = ?"),
            remove_profile: d.sql("DELETE FROM profile WHERE owner = ?"),
            photo: d.sql("UPDATE account SET photo = ? WHERE id = ?"),
        }
    }

    #[cfg(test)]
    fn all(&self) -> Vec<&str> {
        vec![&self.get, &self.remove, &self.remove_profile, &self.photo]
    }
}

async fn put(
    conn: &mut DbConnection,
    name: &str,
    vcard: Option<&[u8]>,
    shown: &SearchableProfile,
    photo: Option<PhotoHash>,
) -> Result<bool, StoreError> {
    let context = conn.context.clone();
    let Some((owner, domain)) = accounts::owner(conn, name).await? else { return Ok(false) };
    let owner = Arg::number(owner);
    match vcard {
        Some(card) => conn.execute(&context.sql.vcards.put, &[owner, Arg::Bytes(card)]).await?,
        None => conn.execute(&context.sql.vcards.remove, &[owner]).await?,
    };
    let hash = match &photo {
        Some(hash) if vcard.is_some() => Arg::Bytes(hash),
        _ => Arg::Null,
    };
    conn.execute(&context.sql.vcards.photo, &[hash, owner]).await?;
    if vcard.is_none() || shown.is_empty() {
        conn.execute(&context.sql.vcards.remove_profile, &[owner]).await?;
        return Ok(true);
    }
    let keys = account_search_keys(accounts::user_of(name), shown);
    let texts = [&shown.name, &shown.first, &shown.last, &shown.nick, &shown.email];
    let mut args = vec![owner, Arg::number(domain)];
    args.extend(keys.iter().map(|key| Arg::Text(key)));
    args.extend(texts.map(|text| Arg::AnyText(text)));
    conn.execute(&context.sql.vcards.put_profile, &args).await?;
    Ok(true)
}

impl Vcards for SqlStores {
    fn get(&self, owner: JidRef<'_>) -> StoreFuture<'_, Option<Vec<u8>>> {
        let name = bare(owner);
        self.read(name, |conn, name| {
            Box::pin(async move {
                let context = conn.context.clone();
                let row = conn.fetch_optional(&context.sql.vcards.get, &[Arg::Text(name)]).await?;
                row.map(|row| row.bytes(0).map(<[u8]>::to_vec)).transpose()
            })
        })
    }

    fn put(
        &self,
        owner: JidRef<'_>,
        vcard: Option<Vec<u8>>,
        searchable: SearchableProfile,
        photo: Option<PhotoHash>,
    ) -> StoreFuture<'_, bool> {
        if let Err(error) = store::vcards::check_size(vcard.as_deref()) {
            return Box::pin(std::future::ready(Err(error)));
        }
        let (name, shown) = (bare(owner), searchable.truncated());
        let bytes = vcard.as_ref().map_or(0, Vec::len) + 1024;
        let owner = Owner::Name(name.clone());
        self.writer.call(owner, bytes, (name, vcard, shown, photo), |conn, (name, vcard, shown, photo)| {
            Box::pin(put(conn, name, vcard.as_deref(), shown, *photo))
        })
    }

    fn replace(
        &self,
        owner: JidRef<'_>,
        before: Option<Vec<u8>>,
        vcard: Option<Vec<u8>>,
        searchable: SearchableProfile,
        photo: Option<PhotoHash>,
    ) -> StoreFuture<'_, Option<bool>> {
        if let Err(error) = store::vcards::check_size(vcard.as_deref()) {
            return Box::pin(std::future::ready(Err(error)));
        }
        let (name, shown) = (bare(owner), searchable.truncated());
        let bytes =
            [&before, &vcard].map(|card| card.as_ref().map_or(0, Vec::len)).iter().sum::<usize>() + 1024;
        let owner = Owner::Name(name.clone());
        self.writer.call(
            owner,
            bytes,
            (name, before, vcard, shown, photo),
            |conn, (name, before, vcard, shown, photo)| {
                Box::pin(async move {
                    let context = conn.context.clone();
                    // The transaction has locked the owner.
                    let row = conn.fetch_optional(&context.sql.vcards.get, &[Arg::Text(name)]).await?;
                    if row.as_ref().map(|row| row.bytes(0)).transpose()? != before.as_deref() {
                        return Ok(None);
                    }
                    put(conn, name, vcard.as_deref(), shown, *photo).await.map(Some)
                })
            },
        )
    }
}

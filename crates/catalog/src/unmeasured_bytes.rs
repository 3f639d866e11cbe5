//! Table `unmeasured_bytes`: bytes that owners have deleted since the last garbage collection measured their sizes.

use sqlx::AnyConnection;

use crate::error::Result;
use crate::statement::Statement;

/// Bytes of deleted snapshots and projects that still count, by owner.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeletedBytes(pub(crate) Vec<(String, i64)>);

/// Counts bytes that an owner has deleted until the next garbage collection has measured what is left.
pub(crate) async fn add_deleted_bytes(connection: &mut AnyConnection, owner: &str, bytes: i64) -> Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    let add = Statement::new(
        "INSERT INTO unmeasured_bytes (owner, bytes) VALUES ($1, $2)
         ON CONFLICT (owner) DO UPDATE SET bytes = unmeasured_bytes.bytes + excluded.bytes",
    );
    add.text("owner", owner).number(bytes).run(connection).await?;
    Ok(())
}

"""Opening a log; after a crash, checking its unsynced segments and truncating it. Checks of open logs for damage."""

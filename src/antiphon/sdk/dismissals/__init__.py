"""Dead jobs and dead nodes that nobody is told of any more: `mesh.dismissals`."""
